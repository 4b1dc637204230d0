"""The thread of a sender or receiver: it alone uses the ZeroMQ sockets, and sleeps until there is something to do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import zmq
from zmq.utils.monitor import recv_monitor_message

# Heartbeats within each limit on silence, and the limits that pass before their absence ends a connection: by then
# whoever awaits something has given up, with words that say what.
_BEATS = 4
_LIMITS = 2

_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class IoThread:
    """Calls `turn` whenever a registered socket has something, `wake` was called, or the time that the last turn
    returned (milliseconds, None for ever) has passed; `end` once, as the last thing.

    A failing turn ends the thread and its connections, so that peers see it; the interpreter's excepthook tells.
    """

    def __init__(self, name: str, *, turn: Callable[[], int | None], end: Callable[[], None]) -> None:
        self.context = zmq.Context()
        self.poller = zmq.Poller()
        self._turn = turn
        self._end = end
        self._wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        self.poller.register(self._wakeup, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """From any thread: have a turn soon."""
        if not self._closing:
            os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """End the thread, if it was started, and wait for it; no turn is under way any more. May be called twice."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wakeup, 1)
        if self._thread.ident is None:
            self._close_all()
        else:
            self._thread.join()
        os.close(self._wakeup)

    def socket(self, kind: int, *, silence_s: float, max_bytes: int) -> zmq.Socket[bytes]:
        """A socket that keeps what is sent until it is taken, and whose end is seen even where no word of it comes.

        `silence_s` is how long a peer may say nothing where something is awaited. A connection over which a frame of
        more than `max_bytes` is announced ends, before there is memory for it.
        """
        socket = self.context.socket(kind)
        self.poller.register(socket, zmq.POLLIN)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        socket.maxmsgsize = max_bytes
        socket.heartbeat_ivl = max(1, round(silence_s * 1000 / _BEATS))
        socket.heartbeat_timeout = max(1, round(silence_s * 1000 * _LIMITS))
        return socket

    def forget(self, socket: zmq.Socket[bytes]) -> None:
        """Close a socket; what it has not sent yet is lost."""
        self.poller.unregister(socket)
        socket.close(linger=0)

    def _run(self) -> None:
        try:
            while not self._closing:
                timeout = self._turn()
                if self._closing:
                    break
                if (self._wakeup, zmq.POLLIN) in self.poller.poll(timeout):
                    os.eventfd_read(self._wakeup)
        finally:
            self._close_all()

    def _close_all(self) -> None:
        self._end()
        self.context.destroy(linger=0)


class Watch:
    """What becomes of a socket's connections, by their file descriptors."""

    def __init__(self, io: IoThread, socket: zmq.Socket[bytes]) -> None:
        self._io = io
        self._socket = socket
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | _LOST
        self._monitor = socket.get_monitor_socket(events)
        io.poller.register(self._monitor, zmq.POLLIN)

    def changes(self) -> Iterator[tuple[int, bool]]:
        """(descriptor, whether it is connected now) of all that has happened, in order.

        A connection that never came about is told as lost, under a number that means nothing.
        """
        while self._monitor.poll(0):
            told = recv_monitor_message(self._monitor)
            yield int(told["value"]), not told["event"] & _LOST

    def close(self) -> None:
        self._io.poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)


def address(host: str, port: int) -> str:
    """As ZeroMQ wants it."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def receive_all(socket: zmq.Socket[bytes]) -> Iterator[list[zmq.Frame]]:
    """Every message that has arrived whole, as frames."""
    while True:
        try:
            yield socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
