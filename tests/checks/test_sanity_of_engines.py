"""`decode_sanity` against reference engines that really run: which model is asked what, and what a fault does."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.checks import CheckContext, CheckResult, decode_sanity
from harness.engines import LaunchSpec, ReferenceEngine
from harness.suites import DecodeSanityParams
from harness.topology import ParallelConfig


def judge(folder: Path, *, model: str, tp: int, faults: tuple[str, ...] = ()) -> CheckResult:
    parallel = ParallelConfig(tp_size=tp, dcp_size=tp)
    spec = LaunchSpec(kind="reference", model=model, parallel=parallel, faults=faults)
    engine = ReferenceEngine.launch(spec, log=folder / "engine.log")
    try:
        with engine.client.deadline("check decode_sanity", 60):
            return decode_sanity.run(DecodeSanityParams(), CheckContext(client=engine.client, baseline=None))
    finally:
        engine.stop()


@pytest.mark.parametrize("tp", [4, 8])
def test_the_model_that_can_do_sums_does_them(tmp_path: Path, tp: int) -> None:
    result = judge(tmp_path, model="builtin:sums-gqa", tp=tp)
    assert result.outcome == "passed", result.message
    assert "5 of 5 answers right" in result.message
    assert result.figures["not_judged"] == {}


def test_rows_of_other_tokens_make_nonsense_of_it(tmp_path: Path) -> None:
    result = judge(tmp_path, model="builtin:sums-gqa", tp=4, faults=("owner-div",))
    assert result.outcome == "failed"
    assert "'46 + 37 = ' was answered" in result.message


def test_random_weights_still_repeat_themselves_and_end_rightly(tmp_path: Path) -> None:
    result = judge(tmp_path, model="builtin:random-gqa", tp=2)
    assert result.outcome == "passed", result.message
    assert set(result.figures["not_judged"]) == {"content", "printable share", "repetition"}
