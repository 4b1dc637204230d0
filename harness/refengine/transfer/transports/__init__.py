"""Where payload goes on its way from a prefill to a decode rank; control messages are the same for all (`wire`)."""

from harness.refengine.transfer.transports.base import Transport, TransportError, Window, Writer
from harness.refengine.transfer.transports.choose import check_backend, make_transport

__all__ = ["Transport", "TransportError", "Window", "Writer", "check_backend", "make_transport"]
