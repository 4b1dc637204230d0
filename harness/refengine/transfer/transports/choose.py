"""From `--disaggregation-transfer-backend` to a transport."""

from __future__ import annotations

import sys

from harness.errors import UsageError
from harness.refengine.config import TransferBackend
from harness.refengine.transfer.transports.base import Transport
from harness.refengine.transfer.transports.modules import nixl_module
from harness.refengine.transfer.transports.shm import ShmTransport
from harness.refengine.transfer.transports.tcp import TcpTransport


def check_backend(backend: TransferBackend) -> None:
    """Raises UsageError where this transport cannot be used here; imports nothing, so that a launch may ask first."""
    if backend is TransferBackend.SHM and sys.platform != "linux":
        raise UsageError(f"--disaggregation-transfer-backend shm needs Linux, not {sys.platform}; use tcp")
    if backend is TransferBackend.NIXL and nixl_module() is None:
        raise UsageError(
            "--disaggregation-transfer-backend nixl needs the package nixl: pip install 'harness[nixl]'"
        )


def make_transport(backend: TransferBackend) -> Transport:
    """Open a transport in this process. Raises UsageError as `check_backend` does."""
    check_backend(backend)
    if backend is TransferBackend.SHM:
        return ShmTransport()
    if backend is TransferBackend.TCP:
        return TcpTransport()
    # Half a second of import, and an extra.
    from harness.refengine.transfer.transports.nixl import NixlTransport

    return NixlTransport()
