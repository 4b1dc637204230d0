"""Transports by themselves: payload goes where it was granted, and what cannot be reached is refused and why."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer_world import TRANSPORTS, needs_nixl

from harness.errors import UsageError
from harness.refengine.config import TransferBackend
from harness.refengine.transfer.transports import (
    Transport,
    TransportError,
    Window,
    Writer,
    check_backend,
    make_transport,
)
from harness.refengine.transfer.transports.base import SlotSizes
from harness.refengine.transfer.transports.modules import NIXL_MODULES, nixl_module
from harness.refengine.transfer.transports.shm import ShmTransport
from harness.refengine.transfer.transports.tcp import TcpTransport

SIZES = SlotSizes(slots=3, slot_bytes=64)


def carry(receiver: Transport, window: Window, writer: Writer, slot: int, payload: bytes) -> bytes:
    inline = writer.write(slot, payload)
    while not writer.written(slot):
        receiver.progress()
    return bytes(window.payload(slot, len(payload), inline))


@pytest.mark.parametrize("backend", TRANSPORTS)
@settings(max_examples=25, deadline=None)
@given(
    writes=st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=64)), min_size=1, max_size=8)
)
def test_what_is_written_into_a_slot_is_there(
    backend: TransferBackend, writes: list[tuple[int, bytes]]
) -> None:
    receiver, sender = make_transport(backend), make_transport(backend)
    window = receiver.window(SIZES)
    writer = sender.writer(window.offer)
    for slot, payload in writes:
        assert carry(receiver, window, writer, slot, payload) == payload
    writer.close()
    window.close()
    sender.close()
    receiver.close()


@pytest.mark.parametrize("backend", TRANSPORTS)
def test_windows_of_one_rank_are_apart(backend: TransferBackend) -> None:
    receiver, sender = make_transport(backend), make_transport(backend)
    windows = [receiver.window(SIZES) for _ in range(2)]
    writers = [sender.writer(window.offer) for window in windows]
    inlines = [writer.write(1, bytes([nth]) * 8) for nth, writer in enumerate(writers)]
    for writer in writers:
        while not writer.written(1):
            receiver.progress()
    for nth, (window, inline) in enumerate(zip(windows, inlines, strict=True)):
        assert bytes(window.payload(1, 8, inline)) == bytes([nth]) * 8
    # The end of one is not the end of the other.
    writers[0].close()
    windows[0].close()
    assert carry(receiver, windows[1], writers[1], 0, b"still here") == b"still here"
    writers[1].close()
    windows[1].close()
    sender.close()
    receiver.close()


@pytest.mark.parametrize("backend", TRANSPORTS)
@pytest.mark.parametrize(("slot", "size"), [(3, 1), (-1, 1), (0, 65)])
def test_nothing_is_written_outside_the_slots(backend: TransferBackend, slot: int, size: int) -> None:
    receiver, sender = make_transport(backend), make_transport(backend)
    window = receiver.window(SIZES)
    writer = sender.writer(window.offer)
    with pytest.raises(TransportError, match=f"{size} B for slot {slot}, but there are 3 slots of 64 B"):
        writer.write(slot, bytes(size))
    with pytest.raises(TransportError, match="but there are 3 slots of 64 B"):
        window.payload(slot, size, bytes(size))
    writer.close()
    window.close()
    sender.close()
    receiver.close()


@pytest.mark.parametrize("backend", TRANSPORTS)
@pytest.mark.parametrize("odd", [{}, {"slots": 0}, {"slot_bytes": "many"}, {"slots": True}])
def test_an_offer_without_sizes_is_refused(backend: TransferBackend, odd: dict[str, Any]) -> None:
    transport = make_transport(backend)
    window = transport.window(SIZES)
    with pytest.raises(TransportError, match="of an offer is"):
        transport.writer({**window.offer, **odd} if odd else {})
    window.close()
    transport.close()


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"pid": 2**22}, "cannot open the decode rank's memory, /proc/4194304/fd/"),
        ({"fd": 10**6}, "cannot open the decode rank's memory"),
        ({"pid": None}, "pid of an offer is None; expected a number"),
        ({"pid": "1/../self"}, "pid of an offer is '1/../self'; expected a number"),
        ({"fd": "0\0"}, "fd of an offer is '0\\x00'; expected a number"),
        ({"slot_bytes": 2**40}, "3 slots of 1099511627776 B are offered; allowed: 268435456 B in all"),
        ({"name": "harness-kv-of-somebody"}, "is not the decode rank's memory, but /memfd:harness-kv-"),
        ({"slots": 4}, "the decode rank's memory has 192 B, but it offered 256 B"),
    ],
)
def test_shared_memory_that_is_not_there_is_refused(odd: dict[str, Any], why: str) -> None:
    transport = ShmTransport()
    window = transport.window(SIZES)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(TransportError) as raised:
        transport.writer({**window.offer, **odd})
    assert why in str(raised.value)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    window.close()


def test_shared_memory_of_another_namespace_says_what_shm_needs() -> None:
    """Where the number means another file: here a plain one."""
    window = ShmTransport().window(SIZES)
    plain = os.open("/dev/null", os.O_RDWR)
    with pytest.raises(TransportError, match="but /dev/null; shm needs both engines on one Linux host"):
        ShmTransport().writer({**window.offer, "fd": plain})
    os.close(plain)
    window.close()


@pytest.mark.parametrize(
    ("seals", "why"),
    [
        (0, "the decode rank's memory may still shrink"),
        (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE, "the decode rank's memory cannot be written to"),
    ],
)
def test_shared_memory_that_may_vanish_or_takes_nothing_is_refused(seals: int, why: str) -> None:
    """Writing to what has shrunk ends a process, whatever it catches."""
    fd = os.memfd_create("harness-kv-test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZES.total_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(TransportError, match=why):
        ShmTransport().writer({**asdict(SIZES), "pid": os.getpid(), "fd": fd, "name": "harness-kv-test"})
    os.close(fd)


def test_a_payload_over_tcp_must_be_there_and_whole() -> None:
    window = TcpTransport().window(SIZES)
    with pytest.raises(TransportError, match="a block of 8 B came with no payload"):
        window.payload(0, 8, None)
    with pytest.raises(TransportError, match="a block of 8 B came with a payload of 7 B"):
        window.payload(0, 8, bytes(7))


def test_a_folder_alone_is_no_nixl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in NIXL_MODULES:
        (tmp_path / name).mkdir()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert nixl_module() is None


def test_without_nixl_its_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(name: str) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    with pytest.raises(UsageError, match=r"needs the package nixl: pip install 'harness\[nixl\]'"):
        check_backend(TransferBackend.NIXL)
    with pytest.raises(UsageError, match="needs the package nixl"):
        make_transport(TransferBackend.NIXL)
    check_backend(TransferBackend.TCP)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"agent": None}, "names no agent and no address"),
        ({"address": "here"}, "names no agent and no address"),
        ({"address": 2**64 - 191}, "an offer for NIXL names the address 18446744073709551425; there is none"),
        ({"address": -8}, "an offer for NIXL names the address -8; there is none"),
        ({"agent": "?"}, "an offer for NIXL holds no agent"),
        ({"agent": "bm90aGluZw=="}, "NIXL cannot reach the decode rank's agent"),
    ],
)
@needs_nixl
def test_an_agent_that_is_none_is_refused(odd: dict[str, Any], why: str) -> None:
    transport = make_transport(TransferBackend.NIXL)
    window = transport.window(SIZES)
    with pytest.raises(TransportError, match=why):
        transport.writer({**window.offer, **odd})
    window.close()
    transport.close()
