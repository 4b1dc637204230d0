"""Which checks of a shipped parity suite see which fault, on real engines: exactly those told here, each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.checks import CHECKS, Baseline, CheckContext, CheckResult
from harness.checks.asks import ask_engine
from harness.checks.launches import to_launch
from harness.engines import ReferenceEngine
from harness.faults import FAULTS, Reach
from harness.suites import CHECK_PARAMS, EngineSpec, Job, ProfileName, expand, load_suite
from harness.verdict import CheckOutcome

SUITES = Path(__file__).parents[2] / "suites"
# Bounds launches and checks that take seconds when all is well; never a claim about speed.
PATIENCE_S = 180.0

# Less of everything than the suite asks, in its order; each number is there for a fault that needs it: one token
# for empty shards, 65 for a second page, and a burst of 64 for prefill chunks that do not align.
PARAMS = {
    "active": {"dcp": 4},
    "sources": {},
    "parity": {"lengths": [1, 2, 5, 65], "max_new_tokens": 6},
    "batch": {"sizes": [2, 64], "max_new_tokens": 4},
    "rows": {"lengths": [1, 5, 65]},
    "drained": {"wait": "1s"},
}
NUMBERS = {"parity", "batch"}
ONE_ENGINE = [fault.id for fault in FAULTS.values() if fault.reach is Reach.ENGINE]
SEEN_BY = {
    **dict.fromkeys(ONE_ENGINE, NUMBERS),
    "empty-shard": {"parity"},  # the burst's prompts reach every rank
    "lse-stride": {"batch"},
    "prefix-order": {"batch"},
    "merge-skipped": {"active"} | NUMBERS,
    "owner-div": {"rows"} | NUMBERS,
    "write-all": {"rows"} | NUMBERS,
    "pad-slot": {"batch", "rows", "drained"},  # `active` has had page 1 before `parity` asks
    "free-partial": {"rows", "drained"},
    "ps-early": {"sources", "rows"} | NUMBERS,
    "owner-rotated": {"rows"},
    "owner-page": {"rows"},
}


@pytest.fixture(scope="module")
def job() -> Job:
    (found,) = expand(load_suite(SUITES / "dcp/parity_dcp4.yaml", root=SUITES), ProfileName.CPU)
    return found


@pytest.fixture(scope="module")
def baseline(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    with running(job.baseline, log=tmp_path_factory.mktemp("baseline") / "log") as engine:
        asks = [ask for name in PARAMS for ask in CHECKS[name].baseline_asks(parsed(name))]
        answers = {ask: ask_engine(engine.client, ask) for ask in asks}
        return Baseline(info=engine.client.server_info(), answers=answers, origin="asked by this test")


@contextmanager
def running(spec: EngineSpec | None, *, log: Path, faults: tuple[str, ...] = ()) -> Iterator[ReferenceEngine]:
    assert spec is not None
    launch = replace(to_launch(spec, faults=faults), launch_timeout_s=PATIENCE_S)
    engine = ReferenceEngine.launch(launch, log=log)
    try:
        with engine.client.deadline("this test", PATIENCE_S):
            yield engine
    finally:
        engine.stop()


def parsed(check: str) -> object:
    return CHECK_PARAMS[check].model_validate(PARAMS[check])


def judged(job: Job, baseline: Baseline, *, log: Path, faults: tuple[str, ...]) -> dict[str, CheckResult]:
    with running(job.engine, log=log, faults=faults) as engine:
        context = CheckContext(client=engine.client, baseline=baseline)
        return {name: CHECKS[name].run(parsed(name), context) for name in PARAMS}


def test_the_healthy_engine_passes_everything(job: Job, baseline: Baseline, tmp_path: Path) -> None:
    results = judged(job, baseline, log=tmp_path / "log", faults=())
    assert {result.outcome for result in results.values()} == {CheckOutcome.PASSED}


@pytest.mark.parametrize("fault_id", ONE_ENGINE)
def test_a_fault_is_seen_by(fault_id: str, job: Job, baseline: Baseline, tmp_path: Path) -> None:
    results = judged(job, baseline, log=tmp_path / "log", faults=(fault_id,))
    seen = {name for name, result in results.items() if result.outcome is CheckOutcome.FAILED}
    assert seen == SEEN_BY[fault_id], [result.message for result in results.values()]
