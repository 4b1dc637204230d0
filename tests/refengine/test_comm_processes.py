"""Communicators between real forked processes: every backend gives, bit for bit, what the oracle says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from comm_forks import RankForker
from comm_programs import Scenario, calls_by_kind, draw_steps, expected, run_program, same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.refengine.comm import ThreadWorld
from harness.refengine.config import EngineConfig

TOPOLOGIES = [(1, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8)]


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForker]:
    forker = RankForker(tmp_path_factory.mktemp("ranks"))
    yield forker
    forker.close()


def assert_expected(scenario: Scenario, results: list[list[Any]]) -> None:
    steps = draw_steps(scenario)
    assert len(results) == scenario.tp
    for rank, got in enumerate(results):
        for step, mine, right in zip(steps, got, expected(scenario, rank), strict=True):
            assert same(mine, right), f"rank {rank}, {step}: {mine} instead of {right}"


@pytest.mark.parametrize(("tp", "dcp"), TOPOLOGIES)
def test_shared_memory_equals_the_oracle(forker: RankForker, tp: int, dcp: int) -> None:
    scenario = Scenario(backend="shm", tp=tp, dcp=dcp, seed=tp * 10 + dcp, steps=150)
    assert_expected(scenario, forker.run(scenario))


@pytest.mark.parametrize(("tp", "dcp"), TOPOLOGIES)
def test_gloo_in_one_hop_equals_the_oracle(forker: RankForker, tp: int, dcp: int) -> None:
    scenario = Scenario(backend="gloo", tp=tp, dcp=dcp, seed=tp * 10 + dcp, steps=40)
    assert_expected(scenario, forker.run(scenario))


@pytest.mark.parametrize(("tp", "dcp"), TOPOLOGIES)
def test_the_librarys_own_verbs_equal_the_oracle(forker: RankForker, tp: int, dcp: int) -> None:
    """The path that NCCL takes, under gloo; its sums are in the library's order, hence exact values."""
    scenario = Scenario(backend="native", tp=tp, dcp=dcp, seed=tp * 10 + dcp, steps=40, integers=True)
    assert_expected(scenario, forker.run(scenario))


@pytest.mark.parametrize("backend", ["shm", "gloo"])
def test_inherited_descriptors_are_enough_to_connect(forker: RankForker, backend: str) -> None:
    scenario = Scenario(backend=backend, tp=4, dcp=2, seed=5, steps=20, slot_bytes=8192, adopt=True)
    assert_expected(scenario, forker.run(scenario))


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("shm", "ShmCommunicator"), ("gloo", "OneHopCommunicator"), ("native", "NativeCommunicator")],
)
def test_each_backend_is_what_it_says(forker: RankForker, backend: str, kind: str) -> None:
    """Equal results cannot tell backends apart, so that one is not tested in another's name."""
    assert forker.run(Scenario(backend=backend, program="kinds", tp=2, dcp=2)) == [[kind, kind]] * 2


@given(
    topology=st.sampled_from(TOPOLOGIES),
    seed=st.integers(0, 2**16),
    steps=st.integers(1, 30),
    slot_bytes=st.sampled_from([4096, 8192, 1 << 20]),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_of_verbs_is_the_same_in_processes_and_in_threads(
    forker: RankForker, topology: tuple[int, int], seed: int, steps: int, slot_bytes: int
) -> None:
    tp, dcp = topology
    scenario = Scenario(backend="shm", tp=tp, dcp=dcp, seed=seed, steps=steps, slot_bytes=slot_bytes)
    world = ThreadWorld(EngineConfig(tp=tp, dcp=dcp))
    in_threads = world.run(lambda rank, comms: run_program(comms, rank, scenario))
    for mine, theirs in zip(forker.run(scenario), in_threads, strict=True):
        assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("backend", ["shm", "gloo"])
def test_a_wrapper_from_outside_sees_exactly_what_is_counted(forker: RankForker, backend: str) -> None:
    scenario = Scenario(backend=backend, program="counted", tp=4, dcp=2, seed=3, steps=40)
    for rank in forker.run(scenario):
        assert rank["seen"] == rank["counts"]
        for group in ("tp", "dcp"):
            called = {kind: n for kind, n in rank["counts"][group].items() if n}
            assert called == calls_by_kind(scenario, group)


def test_ranks_that_disagree_all_hear_of_it(forker: RankForker) -> None:
    for message in forker.run(Scenario(program="disagree", tp=4)):
        assert "rank 0 in all_gather of 8 bytes" in message
        assert "rank 3 in all_reduce of 12 bytes" in message


def test_an_orphan_stops_waiting_for_ranks_that_never_come(forker: RankForker) -> None:
    (message,) = forker.run(Scenario(program="orphaned", tp=1))
    assert "is gone; 1 of 2 ranks had come" in message
