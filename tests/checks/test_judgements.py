"""Every check is silent on a healthy engine and loud on each rule that it is there for."""

from __future__ import annotations

from typing import Any, cast

import pytest
from fake_engine import FakeEngine

from harness.checks import CHECKS, Baseline, CheckContext, CheckResult, MissingBaselineError
from harness.engines import EngineClient
from harness.suites import CHECK_PARAMS

PARAMS: dict[str, dict[str, Any]] = {
    "active": {"dcp": 4},
    "sources": {},
    "parity": {"lengths": [1, 5, 9], "max_new_tokens": 4},
    "batch": {"sizes": [2, 2, 5], "max_new_tokens": 3},
    "capacity": {},
    "caps": {},
    "rows": {"lengths": [1, 5, 33]},
    "decode_sanity": {},
    "drained": {},
}


def judge(name: str, engine: FakeEngine, *, baseline: FakeEngine | None = None, **params: Any) -> CheckResult:
    """Run one check on fakes; the baseline is a healthy engine at dcp 1."""
    base = baseline or FakeEngine(dcp=1, rows=engine.rows * 2, row_bytes=256)
    parsed = CHECK_PARAMS[name].model_validate({**PARAMS[name], **params})
    groups = CHECKS[name].baseline_asks(parsed)
    context = CheckContext(
        client=cast(EngineClient, engine),
        baseline=Baseline(
            info=base.server_info(),
            answers={group: tuple(base.generate_batch(list(group))) for group in groups},
            origin="fake",
        ),
    )
    return CHECKS[name].run(parsed, context)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize(("tp", "dcp", "backend"), [(4, 4, "ag_rs"), (8, 4, "a2a")])
def test_a_healthy_engine_passes(name: str, tp: int, dcp: int, backend: str) -> None:
    result = judge(name, FakeEngine(tp=tp, dcp=dcp, backend=backend))
    assert result.outcome == "passed", result.message


LOUD = [
    ("active", "silent-off", "(1, "),
    ("active", "strided", "lives in"),
    ("active", "no-collectives", "made no all_gather or reduce_scatter"),
    ("active", "uneven", "different numbers of DCP collectives"),
    ("active", "one-process", "share a process"),
    ("active", "per-rank-total", "is not the 256 rows"),
    (
        "sources",
        "ps-early",
        "ranks 0 to 3: attn_dcp_size: seed 4, ps 1, live 4: the KV pool is sized four times too small",
    ),
    ("sources", "ps-early", "ranks 1 to 3: attn_dcp_rank: ps 0, live 1 on rank 1: a rank writing its"),
    ("sources", "no-group", "ranks 0 to 3: attn_dcp_size: seed 4, ps 4, live 1: no DCP group is up"),
    ("sources", "ps-impossible", "rank 2: tells sources that cannot be: attn_dcp_rank is 4"),
    ("sources", "two-of-a-rank", "rank 2: answers as rank 2, but its live topology says tp_rank 1"),
    ("sources", "early-read", "ranks 0, 2: early read: runner.py:7: __init__ read dcp_enabled before init"),
    ("parity", "other-token", "baseline token"),
    ("parity", "logprob-drift", "apart by 0.02"),
    ("parity", "nan", "nan"),
    ("parity", "short-answer", "engine answered 3 of 4 tokens"),
    ("batch", "other-token", "answers differ from dcp=1"),
    ("batch", "logprob-drift", "answers differ from dcp=1"),
    ("batch", "burst-differs", "the second burst gave other tokens"),
    ("batch", "short-answer", "request 0: 2 of 3 tokens"),
    ("capacity", "per-rank-total", "is not 64 rows × dcp 4"),
    ("capacity", "uneven-rows", "different numbers of KV rows"),
    ("caps", "per-rank-cap", "fits and was refused"),
    ("caps", "no-cap", "can never fit and was answered"),
    ("caps", "page-short", "can never fit and was answered"),
    ("caps", "crash-on-long", "can never fit: too long"),
    ("caps", "short-answer", "fits and was answered with"),
    ("rows", "permuted", "should hold position"),
    ("rows", "lost-request", "2 requests in flight, expected 3"),
    ("rows", "scribble", "a free row was written"),
    ("drained", "stuck", "1 requests running"),
    ("drained", "leak", "tp_rank 2 holds 3 of 64 rows"),
    ("drained", "scribble", "a free row was written"),
]


@pytest.mark.parametrize(("name", "fault", "words"), LOUD)
def test_a_broken_rule_is_seen_and_named(name: str, fault: str, words: str) -> None:
    engine = FakeEngine(tp=8 if fault == "strided" else 4, faults=frozenset({fault}))
    result = judge(name, engine)
    assert result.outcome == "failed", result.message
    assert words in result.message


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("active", "no-proof"),
        ("sources", "no-proof"),
        ("sources", "no-sources"),
        ("sources", "no-seed"),
        ("capacity", "no-proof"),
        ("capacity", "argument-cap"),
        ("caps", "short-context"),
        ("drained", "no-proof"),
        ("rows", "no-kv-rows"),
    ],
)
def test_without_proof_nothing_is_claimed(name: str, fault: str) -> None:
    assert judge(name, FakeEngine(faults=frozenset({fault}))).outcome == "unproven"


def test_the_message_says_which_sources_agree_or_which_are_missing() -> None:
    assert judge("sources", FakeEngine(tp=8)).message == (
        "8 ranks: seed, ps and live agree on all 19 fields; no early read"
    )
    silent = judge("sources", FakeEngine(faults=frozenset({"no-sources"})))
    assert silent.message.startswith(
        "rank 0 tells nothing of its sources (seed, ps, live, early_reads); rank 1"
    )
    assert (
        judge("sources", FakeEngine(faults=frozenset({"no-seed"}))).message == "rank 1 does not tell its seed"
    )


def test_a_pool_sized_by_the_wrong_dcp_is_seen() -> None:
    # As many rows as MLA would have, though GQA rows are twice as long in a DCP group.
    result = judge("capacity", FakeEngine(rows=128), baseline=FakeEngine(dcp=1, rows=128, row_bytes=256))
    assert result.outcome == "failed"
    assert "call for 256" in result.message


def test_a_baseline_that_answers_short_is_no_reference() -> None:
    result = judge("parity", FakeEngine(), baseline=FakeEngine(dcp=1, faults=frozenset({"short-answer"})))
    assert result.outcome == "failed"
    assert "baseline answered 3 of 4 tokens" in result.message


def test_a_share_of_a_burst_may_differ_where_the_suite_says_so() -> None:
    engine = FakeEngine(faults=frozenset({"other-token"}))
    assert judge("batch", engine, mismatch_share=1.0).outcome == "passed"


def test_prefix_parity_accepts_other_tokens_and_still_bounds_logprobs() -> None:
    assert judge("parity", FakeEngine(faults=frozenset({"other-token"})), tokens="prefix").outcome == "passed"
    assert (
        judge("parity", FakeEngine(faults=frozenset({"logprob-drift"})), tokens="prefix").outcome == "failed"
    )


@pytest.mark.parametrize("name", ["parity", "batch", "capacity"])
def test_no_baseline_is_an_error_and_never_a_pass(name: str) -> None:
    params = CHECK_PARAMS[name].model_validate(PARAMS[name])
    context = CheckContext(client=cast(EngineClient, FakeEngine()), baseline=None)
    with pytest.raises(MissingBaselineError):
        CHECKS[name].run(params, context)


def test_lines_left_out_of_the_message_are_counted_and_all_are_in_the_figures() -> None:
    quiet = judge("sources", FakeEngine(tp=8, faults=frozenset({"no-sources"})))
    assert quiet.message.endswith("; … and 6 more on ranks 2 to 7")
    assert len(quiet.figures["missing"]) == 8
    several = judge("sources", FakeEngine(tp=8, faults=frozenset({"six-early-reads"})))
    lines = [f"ranks 1, 2, 5 to 7: early read: a.py:{line}" for line in range(6)]
    assert several.message == "; ".join([*lines[:4], "… and 2 more on ranks 1, 2, 5 to 7"])
    assert several.figures["divergences"] == lines


def test_what_differs_by_the_rank_alone_is_one_line() -> None:
    off = judge("sources", FakeEngine(tp=8, faults=frozenset({"no-group"})))
    size, rank = off.message.split("; ")
    assert size.startswith("ranks 0 to 7: attn_dcp_size: seed 4, ps 4, live 1: no DCP group is up")
    assert rank.startswith(
        "ranks 1 to 3, 5 to 7: attn_dcp_rank: ps 1, live 0 on rank 1: differs only because DCP is off in live"
    )
    assert [line.split(": differs")[0] for line in off.figures["divergences"][1:]] == [
        f"ranks {n}, {n + 4}: attn_dcp_rank: ps {n}, live 0" for n in (1, 2, 3)
    ]
