"""A job whose extra is not installed does not run, and says what to install."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.planning import ReadyPool, cannot_run
from harness.suites import EngineSpec, Extra, Job, Needs, extras_needed

POOLS = {"cpu": ReadyPool(name="cpu", devices=("cpu:0",))}


def why(job: Job, *extras: Extra) -> str | None:
    return cannot_run(job, POOLS, launchable=(), checks=(), extras=extras)


def test_a_missing_extra_keeps_a_job_from_running(make_job: Callable[..., Job]) -> None:
    job = make_job("a", kind=None, needs=Needs(cpu=1, extras=(Extra.TRITON, Extra.NIXL)))
    assert why(job, Extra.TRITON, Extra.NIXL) is None
    assert why(job, Extra.NIXL) == "needs the extra [triton]: pip install 'harness[triton]'"
    assert why(job) == (
        "needs the extra [triton]: pip install 'harness[triton]'; "
        "needs the extra [nixl]: pip install 'harness[nixl]'"
    )


def test_a_job_without_extras_asks_for_none(make_job: Callable[..., Job]) -> None:
    assert why(make_job("a", cpu=1, kind=None)) is None


def engine(kind: str = "reference", **args: Any) -> EngineSpec:
    args = {name.replace("_", "-"): value for name, value in args.items()}
    return EngineSpec.model_validate({"kind": kind, "model": "m", "args": args})


NIXL = engine(disaggregation_transfer_backend="nixl")
PAIR = {"engine": None, "prefill": engine(), "decode": engine()}


@pytest.mark.parametrize(
    ("engines", "given", "needed"),
    [
        ({"engine": engine(attention_backend="triton")}, {}, {Extra.TRITON}),
        ({"engine": engine(attention_backend="torch")}, {}, set()),
        ({"engine": engine()}, {"attention-backend": "triton"}, {Extra.TRITON}),
        ({"engine": engine(attention_backend="triton")}, {"attention-backend": "torch"}, set()),
        # A real engine's arguments are its own business, and it brings what it needs.
        ({"engine": engine("sglang", attention_backend="triton")}, {}, set()),
        (PAIR | {"prefill": NIXL, "decode": NIXL}, {}, {Extra.NIXL}),
        (PAIR, {"disaggregation-transfer-backend": "nixl"}, {Extra.NIXL}),
        (PAIR | {"decode": engine(attention_backend="triton")}, {}, {Extra.TRITON}),
        # A single engine opens no transport.
        ({"engine": NIXL}, {}, set()),
        ({"engine": None}, {"attention-backend": "triton"}, set()),
    ],
)
def test_arguments_of_engines_need_extras_by_themselves(
    make_job: Callable[..., Job], engines: dict[str, Any], given: dict[str, str], needed: set[Extra]
) -> None:
    job = replace(make_job("a", cpu=1), **engines)
    assert set(extras_needed(job, given)) == needed
    why = cannot_run(job, POOLS, launchable={"reference", "sglang"}, checks=(), engine_args=given)
    assert (why is None) is (not needed)
    assert all(extra.missing in str(why) for extra in needed)
