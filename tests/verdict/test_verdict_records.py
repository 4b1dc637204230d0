"""The JSON contract of design section 8: exact fields, no NaN, checks of the last attempt."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.verdict import (
    AttemptOutcome,
    AttemptRecord,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
    to_json,
    without_nan,
)

START = datetime(2026, 11, 29, 14, 52, tzinfo=UTC)


def test_the_contract_field_by_field():
    failed = CheckRecord(name="parity", outcome=CheckOutcome.FAILED, message="m", figures={"gap": math.inf})
    passed = CheckRecord(
        name="parity", outcome=CheckOutcome.PASSED, figures={"n": 3, "gaps": (0.5, math.nan)}
    )
    job = JobRecord(
        id="dcp/a@cpu[dcp=4]",
        suite="dcp/a",
        profile="cpu",
        matrix={"dcp": 4},
        engine_sha="e",
        verdict=Verdict.FLAKY,
        reason="r",
        attempts=(
            AttemptRecord(
                n=1, outcome=AttemptOutcome.FAILED, node="h", devices=["cpu:0"], reason="x", checks=(failed,)
            ),
            AttemptRecord(n=2, outcome=AttemptOutcome.PASSED, node="h", devices=["cpu:1"], checks=(passed,)),
        ),
        gpu_minutes=1.5,
        seconds=math.nan,
    )
    assert to_json(RunRecord(run="r1", harness_sha="h", started_at=START, jobs=(job,))) == {
        "schema": 1,
        "run": "r1",
        "harness_sha": "h",
        "jobs": [
            {
                "id": "dcp/a@cpu[dcp=4]",
                "suite": "dcp/a",
                "profile": "cpu",
                "matrix": {"dcp": 4},
                "engine_sha": "e",
                "verdict": "flaky",
                "reason": "r",
                "attempts": [
                    {"n": 1, "outcome": "failed", "node": "h", "devices": ["cpu:0"], "reason": "x"},
                    {"n": 2, "outcome": "passed", "node": "h", "devices": ["cpu:1"], "reason": ""},
                ],
                "checks": [
                    {
                        "name": "parity",
                        "outcome": "passed",
                        "message": "",
                        "figures": {"n": 3, "gaps": [0.5, None]},
                    }
                ],
                "gpu_minutes": 1.5,
                "seconds": None,
            }
        ],
    }


def test_unfinished_work_is_null_and_has_no_checks():
    jobs = (
        JobRecord(id="a@cpu", suite="a", profile="cpu"),
        JobRecord(id="b@cpu", suite="b", profile="cpu", attempts=(AttemptRecord(n=1),)),
    )
    waiting, running = to_json(RunRecord(run="r", harness_sha="h", started_at=START, jobs=jobs))["jobs"]
    assert (waiting["verdict"], waiting["attempts"], waiting["checks"]) == (None, [], [])
    assert running["attempts"][0]["outcome"] is None


def test_a_figure_that_json_cannot_hold_is_an_error():
    with pytest.raises(TypeError, match="type set has no JSON form"):
        without_nan({"a": {1, 2}})


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(JSON_LIKE)
def test_what_leaves_is_strict_json_and_finite_values_are_unchanged(value):
    text = json.dumps(without_nan(value), allow_nan=False)
    oracle = json.loads(json.dumps(value), parse_constant=lambda _: None)
    assert json.loads(text) == oracle
