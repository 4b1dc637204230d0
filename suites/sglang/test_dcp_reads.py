"""One test for each row of `_dcp_reads.yaml`: the consumer is driven in the real package, and its source named.

Runs in an SGLang environment: `harness run sglang/dcp_reads --target sglang`.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.reads.judge import check_name, judge
from harness.reads.registry import Consumer, Role, load_consumers
from harness.reads.table import load_table

if importlib.util.find_spec("sglang") is None:
    pytest.fail("sglang is not importable here; first: make sglang VERSION=0.5.18", pytrace=False)

CONSUMERS = load_consumers()
TABLE = load_table(Path(__file__).with_name("_dcp_reads.yaml"), CONSUMERS)
ROWS = [
    pytest.param(CONSUMERS[row.consumer], role, id=check_name(row.consumer, role))
    for row in TABLE.rows.values()
    for role in row.expected
]


@pytest.mark.parametrize(("consumer", "role"), ROWS)
def test_reads(consumer: Consumer, role: Role, record_property: Callable[[str, object], None]) -> None:
    check = {"name": check_name(consumer.name, role), "outcome": "error", "message": "", "figures": {}}
    begin = time.monotonic()
    try:
        judged = judge(TABLE, consumer, role)
        check["outcome"] = "passed" if judged.passed else "failed"
        check["message"], check["figures"] = judged.message, judged.figures
    except Exception as error:
        # What the package raises is no finding about a source: the row is an error, the traceback stays.
        check["message"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        record_property("harness_check", {**check, "seconds": round(time.monotonic() - begin, 3)})
    if not judged.passed:
        pytest.fail(judged.message, pytrace=False)
