"""What exists before ranks start: nothing with a name, and refusals that say what to do instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from comm_forks import wrap_communicators

from harness.errors import UsageError
from harness.refengine.comm import ShmPlumbing, ThreadWorld, TorchPlumbing, create_plumbing, futex
from harness.refengine.config import CommBackend, EngineConfig
from harness.refengine.seams import patch


@pytest.mark.parametrize(("comm", "kind"), [("shm", ShmPlumbing), ("gloo", TorchPlumbing)])
def test_the_backend_decides_the_plumbing(comm: str, kind: type) -> None:
    plumbing = create_plumbing(EngineConfig(tp=4, dcp=2, comm=CommBackend(comm)))
    assert type(plumbing) is kind
    plumbing.close()


def test_threads_join_no_processes() -> None:
    with pytest.raises(UsageError, match="--comm threads cannot join processes; allowed: shm, gloo, nccl"):
        create_plumbing(EngineConfig(comm=CommBackend.THREADS))


def test_regions_are_anonymous_and_one_for_each_group() -> None:
    plumbing = ShmPlumbing.create(EngineConfig(tp=8, dcp=4))
    links = [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in plumbing.fds]
    assert links == [f"/memfd:harness-{name} (deleted)" for name in ("tp", "dcp0", "dcp1")]
    assert not any(os.get_inheritable(fd) for fd in plumbing.fds)
    plumbing.close()


def test_close_gives_every_descriptor_back() -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    for plumbing in (ShmPlumbing.create(EngineConfig(tp=4, dcp=2)), TorchPlumbing.create(EngineConfig(tp=2))):
        plumbing.close()
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize(("system", "machine"), [("linux", "aarch64"), ("darwin", "x86_64")])
def test_shared_memory_elsewhere_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(futex.sys, "platform", system)
    monkeypatch.setattr(futex.platform, "machine", lambda: machine)
    with pytest.raises(
        UsageError, match=f"needs Linux on x86-64, found {system} on {machine}: use --comm gloo"
    ):
        create_plumbing(EngineConfig(tp=2))


def test_slots_are_whole_pages() -> None:
    with pytest.raises(UsageError, match="a slot of 1000 bytes"):
        ShmPlumbing.create(EngineConfig(tp=2), slot_bytes=1000)


@pytest.fixture
def wrapped() -> Iterator[None]:
    original = wrap_communicators()
    yield
    patch("make-communicators", original)


@pytest.mark.usefixtures("wrapped")
def test_the_seam_reaches_thread_worlds() -> None:
    def call_thrice(rank: int, comms: Any) -> dict[str, int]:
        for _ in range(3):
            comms.dcp.barrier()
        seen: dict[str, int] = comms.dcp.seen
        return seen

    for seen in ThreadWorld(EngineConfig(tp=2, dcp=2)).run(call_thrice):
        assert seen["barrier"] == 3
        assert sum(seen.values()) == 3
