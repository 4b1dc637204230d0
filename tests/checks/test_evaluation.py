"""`harness eval accuracy` on servers that are not ours: whose trouble it is, and that it is told as a result."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fake_completions import FakeCompletions, serving_completions

from harness.checks import CHECKS, BaselineUse, CheckResult
from harness.checks.questions import make_plan
from harness.cli.evaluation import Engines, evaluate_check
from harness.errors import UsageError
from harness.suites import AccuracyParams
from harness.verdict import CheckOutcome

PARAMS = AccuracyParams(task="sums", questions=40, shots=1, effect=1.0, batch=20, concurrency=4)
PLAN = make_plan(PARAMS)
DCP1 = {"max_total_num_tokens": 4096, "tp_size": 4, "page_size": 4}


def evaluate(tmp_path: Path, *, baseline: dict[str, Any] | None = None, **faults: Any) -> CheckResult:
    with ExitStack() as servers:
        url = servers.enter_context(serving_completions(FakeCompletions.of(PLAN, **faults)))
        base = None
        if baseline is not None:
            script = FakeCompletions.of(PLAN, **{"info": DCP1, **baseline})
            base = servers.enter_context(serving_completions(script))
        engines = Engines(url=url, baseline_url=base, baselines=tmp_path / "none.yaml")
        return evaluate_check("accuracy", CHECKS["accuracy"], PARAMS, engines=engines, seconds=20)


def test_equal_servers_pass(tmp_path: Path) -> None:
    result = evaluate(tmp_path, baseline={})
    assert result.outcome is CheckOutcome.PASSED, result.message


def test_a_server_alone_tells_its_score_and_proves_nothing(tmp_path: Path) -> None:
    result = evaluate(tmp_path, tells_models=False)
    assert result.outcome is CheckOutcome.UNPROVEN
    assert "40 of 40 right" in result.message


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"refused": 0.3}, "of 40 requests failed"),
        ({"dies_at": 10}, "baseline: engine died: after "),
    ],
)
def test_a_baseline_that_fails_is_an_error_of_its_own(
    fault: dict[str, Any], told: str, tmp_path: Path
) -> None:
    result = evaluate(tmp_path, baseline=fault)
    assert result.outcome is CheckOutcome.ERROR
    assert result.message.startswith("baseline: ")
    assert told in result.message


def test_a_baseline_that_only_answers_questions_is_compared_with_and_told_so(tmp_path: Path) -> None:
    result = evaluate(tmp_path, baseline={"info": {}})
    assert result.outcome is CheckOutcome.PASSED
    assert "which does not say at which dcp it runs" in result.message


def test_a_file_of_baselines_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    engines = Engines(url="http://127.0.0.1:1", baselines=tmp_path / "none.yaml")
    with pytest.raises(UsageError, match=r"none\.yaml is no file"):
        engines.check("accuracy", BaselineUse.OPTIONAL)


def test_an_engine_that_dies_is_not_the_baseline(tmp_path: Path) -> None:
    result = evaluate(tmp_path, baseline={}, dies_at=10)
    assert result.outcome is CheckOutcome.ERROR
    assert result.message.startswith("engine died: after ")
