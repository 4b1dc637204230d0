"""A job whose extra is not installed does not run, and says what to install."""

from __future__ import annotations

from collections.abc import Callable

from harness.planning import ReadyPool, cannot_run
from harness.suites import Extra, Job, Needs

POOLS = {"cpu": ReadyPool(name="cpu", devices=("cpu:0",))}


def why(job: Job, *extras: Extra) -> str | None:
    return cannot_run(job, POOLS, launchable=(), checks=(), extras=extras)


def test_a_missing_extra_keeps_a_job_from_running(make_job: Callable[..., Job]) -> None:
    job = make_job("a", kind=None, needs=Needs(cpu=1, extras=(Extra.TRITON, Extra.NIXL, Extra.NIXL)))
    assert why(job, Extra.TRITON, Extra.NIXL) is None
    assert why(job, Extra.NIXL) == "needs the extra [triton]: pip install 'harness[triton]'"
    assert why(job) == (
        "needs the extra [triton]: pip install 'harness[triton]'; "
        "needs the extra [nixl]: pip install 'harness[nixl]'"
    )


def test_a_job_without_extras_asks_for_none(make_job: Callable[..., Job]) -> None:
    assert why(make_job("a", cpu=1, kind=None)) is None
