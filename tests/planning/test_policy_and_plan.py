"""The policy and its simulation: exactly once, never two on a device, no starving, order does not matter."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.planning import PlannedJob, Policy, ReadyPool, plan, prove
from harness.suites import Job

MakeJob = Callable[..., Job]

POOLS = {
    "cpu": ReadyPool(name="cpu", devices=tuple(f"cpu:{i}" for i in range(4))),
    "h200a": ReadyPool(name="h200a", gpu="h200", devices=("gpu:0", "gpu:1", "gpu:2", "gpu:3")),
    "h200b": ReadyPool(name="h200b", gpu="h200", devices=("gpu:4", "gpu:5")),
}

# (pool kind, devices, estimate): few distinct values, so that ties and collisions are common.
SHAPES = st.lists(
    st.tuples(st.sampled_from([None, "h200"]), st.integers(1, 4), st.sampled_from([1.0, 2.0, 3.0, 7.0])),
    min_size=1,
    max_size=9,
)
CPU_SHAPES = SHAPES.map(lambda shapes: [(None, count, estimate) for _, count, estimate in shapes])


def jobs_of(make_job: MakeJob, shapes: Sequence[tuple[str | None, int, float]]) -> list[Job]:
    return [
        make_job(f"j{n}", gpu=gpu, count=count, estimate=estimate)
        if gpu
        else make_job(f"j{n}", cpu=count, estimate=estimate)
        for n, (gpu, count, estimate) in enumerate(shapes)
    ]


def planned(jobs: Sequence[Job]) -> list[PlannedJob]:
    return plan(jobs, POOLS, cannot=lambda job: None)


@given(shapes=SHAPES, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_order_of_input_does_not_matter(
    make_job: MakeJob, shapes: list[tuple[str | None, int, float]], seed: int
) -> None:
    jobs = jobs_of(make_job, shapes)
    shuffled = jobs.copy()
    random.Random(seed).shuffle(shuffled)
    assert planned(shuffled) == planned(jobs)


@given(shapes=SHAPES)
@settings(max_examples=60, deadline=None)
def test_every_moment_holds_each_device_once_and_each_job_gets_what_it_needs(
    make_job: MakeJob, shapes: list[tuple[str | None, int, float]]
) -> None:
    jobs = jobs_of(make_job, shapes)
    lines = planned(jobs)
    assert sorted(line.id for line in lines) == sorted(job.id for job in jobs)
    for line, (gpu, count, _) in zip(sorted(lines, key=lambda line: line.id), shapes, strict=True):
        assert line.pool is not None
        assert POOLS[line.pool].gpu == gpu
        assert len(line.devices) == len(set(line.devices)) == count
        assert set(line.devices) <= set(POOLS[line.pool].devices)
    end = sum(shape[2] for shape in shapes)
    for half_seconds in range(int(2 * end) + 1):
        moment = half_seconds / 2
        held = [
            device
            for line in lines
            if line.start_s is not None and line.start_s <= moment < line.start_s + line.estimate_s
            for device in line.devices
        ]
        assert len(held) == len(set(held))


@given(shapes=CPU_SHAPES)
@settings(max_examples=80, deadline=None)
def test_backfill_never_delays_the_job_that_is_next(
    make_job: MakeJob, shapes: list[tuple[str | None, int, float]]
) -> None:
    """The two longest start as early as if the others were not there."""
    jobs = sorted(jobs_of(make_job, shapes), key=lambda job: (-job.estimate_s, job.id))
    alone = {line.id: line.start_s for line in planned(jobs[:2])}
    among = {line.id: line.start_s for line in planned(jobs)}
    assert {job_id: among[job_id] for job_id in alone} == alone


@given(shapes=CPU_SHAPES)
@settings(max_examples=60, deadline=None)
def test_no_pool_idles_while_a_job_waits(
    make_job: MakeJob, shapes: list[tuple[str | None, int, float]]
) -> None:
    lines = planned(jobs_of(make_job, shapes))
    ends = {line.start_s + line.estimate_s for line in lines if line.start_s is not None}
    for line in lines:
        assert line.start_s == 0 or line.start_s in ends


def test_jobs_are_packed_side_by_side_the_longest_first(make_job: MakeJob) -> None:
    jobs = [make_job("short", cpu=2, estimate=5), make_job("long", cpu=2, estimate=9)]
    assert [(line.suite, line.start_s, line.devices) for line in planned(jobs)] == [
        ("long", 0, ("cpu:0", "cpu:1")),
        ("short", 0, ("cpu:2", "cpu:3")),
    ]


def test_a_short_job_slips_in_before_a_blocked_one_and_a_long_one_does_not(make_job: MakeJob) -> None:
    jobs = [
        make_job("a_first", cpu=3, estimate=10),
        make_job("b_whole", cpu=4, estimate=9),
        make_job("c_fits", cpu=1, estimate=8),
        make_job("d_fits", cpu=1, estimate=2),
        make_job("e_late", cpu=1, estimate=1.5),
    ]
    starts = {line.suite: line.start_s for line in planned(jobs)}
    # c and d share the fourth slot: 8 + 2 ends exactly when b may start; e would end later than that.
    assert starts == {"a_first": 0, "b_whole": 10, "c_fits": 0, "d_fits": 8, "e_late": 19}


def test_one_pool_blocked_does_not_hold_up_another(make_job: MakeJob) -> None:
    jobs = [make_job(f"g{n}", gpu="h200", count=4, estimate=100) for n in range(2)]
    starts = {line.suite: line.start_s for line in planned([*jobs, make_job("c", cpu=1, estimate=1)])}
    assert starts == {"g0": 0, "g1": 100, "c": 0}


def test_refused_jobs_come_last_with_their_reason_and_cost_nothing(make_job: MakeJob) -> None:
    jobs = [make_job("b", cpu=99), make_job("a", gpu="h200", count=2, estimate=90)]
    lines = plan(jobs, POOLS, cannot=lambda job: "too large" if job.needs.cpu == 99 else None)
    assert [(line.suite, line.start_s, line.cannot, line.gpu_minutes) for line in lines] == [
        ("a", 0, None, 3.0),
        ("b", None, "too large", 0.0),
    ]


def test_withheld_devices_are_left_alone_and_do_not_stop_the_rest(make_job: MakeJob) -> None:
    policy = Policy([POOLS["cpu"]])
    policy.submit(make_job("whole", cpu=4, estimate=50))
    policy.submit(make_job("one", cpu=1, estimate=99))
    held = frozenset({"cpu:0", "cpu:1"})
    first = policy.next_start(0, withheld=held)
    assert first is not None
    assert (first.job_id, first.devices) == ("one@cpu", ("cpu:2",))
    assert policy.next_start(0, withheld=held) is None
    assert policy.waiting == ["whole@cpu"]
    policy.finished("one@cpu")
    second = policy.next_start(1)
    assert second is not None
    assert second.devices == ("cpu:0", "cpu:1", "cpu:2", "cpu:3")


def test_a_job_that_outlives_its_estimate_still_blocks_only_its_own_devices(make_job: MakeJob) -> None:
    policy = Policy([POOLS["cpu"]])
    policy.submit(make_job("over", cpu=3, estimate=10))
    assert policy.next_start(0) is not None
    policy.submit(make_job("whole", cpu=4, estimate=9))
    policy.submit(make_job("one", cpu=1, estimate=1))
    # At 50 `over` is 40 s late and may end at once, so nothing may get in the way of `whole`.
    assert policy.next_start(50) is None
    policy.finished("over@cpu")
    placed = policy.next_start(51)
    assert placed is not None
    assert placed.job_id == "whole@cpu"


def test_a_policy_refuses_what_it_cannot_keep(make_job: MakeJob) -> None:
    policy = Policy([POOLS["cpu"]])
    policy.submit(make_job("a", cpu=1))
    with pytest.raises(ValueError, match="already submitted"):
        policy.submit(make_job("a", cpu=1))
    with pytest.raises(ValueError, match="fits in no pool"):
        policy.submit(make_job("b", cpu=5))
    policy.withdraw("a@cpu")
    assert policy.waiting == []


def test_the_proof_sees_a_broken_plan(make_job: MakeJob) -> None:
    jobs = [make_job("a", cpu=4, estimate=10), make_job("b", cpu=4, estimate=9)]
    good = planned(jobs)
    prove(jobs, good)
    with pytest.raises(RuntimeError, match="every job exactly once"):
        prove(jobs, good[:1])
    with pytest.raises(RuntimeError, match="every job exactly once"):
        prove(jobs, [*good, good[0]])
    with pytest.raises(RuntimeError, match=r"the same devices at the same time"):
        prove(jobs, [good[0], dataclasses.replace(good[1], start_s=9.5)])
    with pytest.raises(RuntimeError, match=r"neither starts nor refuses b@cpu"):
        prove(jobs, [good[0], dataclasses.replace(good[1], start_s=None)])
