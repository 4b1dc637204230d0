"""`transfer` and `drained` of a pair: silent on a healthy one, loud on each rule of handing over."""

from __future__ import annotations

from typing import Any, cast

import pytest
from fake_engine import FakeEngine
from fake_pair import DECODE, PREFILL, FakeRouter, FakeSide

from harness.checks import CHECKS, CheckContext, CheckResult
from harness.engines import EngineClient
from harness.suites import CHECK_PARAMS


def judge(name: str, client: Any, **params: Any) -> CheckResult:
    context = CheckContext(client=cast(EngineClient, client), baseline=None)
    return CHECKS[name].run(CHECK_PARAMS[name].model_validate(params), context)


def transfer(router: Any, *lengths: int) -> CheckResult:
    return judge("transfer", router, lengths=lengths or (1, 5, 33))


def faulty(*, prefill: str = "", decode: str = "", router: str = "") -> FakeRouter:
    return FakeRouter(
        prefill=FakeSide(tp=2, dcp=1, row_bytes=1024, faults=frozenset({prefill})),
        decode=FakeSide(faults=frozenset({decode})),
        faults=frozenset({router}),
    )


@pytest.mark.parametrize("lengths", [(1,), (3, 3, 3), (1, 5, 33), (4, 8)])
def test_a_healthy_pair_passes_and_tells_its_bytes(lengths: tuple[int, ...]) -> None:
    result = transfer(FakeRouter(), *lengths)
    assert result.outcome == "passed", result.message
    # One KV head set a group of four: a token is one row of 512 bytes on one of the ranks.
    assert (result.figures["rows_owned"], result.figures["bytes_owned"]) == (sum(lengths), 512 * sum(lengths))
    assert f"of their {sum(lengths):,} rows" in result.message


def test_two_groups_each_get_every_token() -> None:
    router = FakeRouter(decode=FakeSide(tp=8, dcp=4))
    assert transfer(router, 5).figures["rows_owned"] == 10


def test_what_came_before_is_not_counted() -> None:
    router = FakeRouter()
    assert transfer(router, 9).outcome == "passed"
    again = transfer(router, 5)
    assert (again.outcome, again.figures["rows_owned"]) == ("passed", 5)


LOUD = [
    ({"decode": "permuted"}, "should hold position"),
    ({"decode": "scribble"}, "a free row was written"),
    ({"decode": "lost-request"}, "2 requests in flight on the decode side, expected 3"),
    ({"router": "sent-twice"}, "tp_rank 0 of decode received 12,288 bytes of KV, owns 6,144"),
    ({"router": "sent-twice"}, "prefill sent 12,288 bytes of KV to tp_rank 0, which owns 6,144"),
    ({"router": "sent-twice"}, "prefill sent 26,112 bytes of KV in all, 19,968 are owned"),
    ({"router": "lost-on-the-way"}, "tp_rank 3 of decode received 0 bytes of KV, owns 4,608"),
    ({"router": "to-a-neighbour"}, "tp_rank 1 of decode received 6,144 bytes of KV, owns"),
]


@pytest.mark.parametrize(("where", "words"), LOUD)
def test_a_broken_rule_of_handing_over_is_seen_and_named(where: dict[str, str], words: str) -> None:
    result = transfer(faulty(**where))
    assert result.outcome == "failed"
    assert words in "; ".join(result.figures["faults"])


def test_rows_of_two_ranks_exchanged_move_the_same_bytes() -> None:
    """The bytes alone would pass: this is why both are looked at."""
    result = transfer(faulty(decode="permuted"), 4)
    assert result.outcome == "failed"
    assert not [fault for fault in result.figures["faults"] if "bytes" in fault]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"router": "no-pair"}, "ask the router"),
        ({"prefill": "no-bytes"}, "the prefill engine does not tell how many bytes"),
        ({"decode": "no-bytes"}, "the decode engine does not tell how many bytes"),
        ({"decode": "no-proof"}, "the decode engine does not tell how many bytes"),
        ({"decode": "no-kv-rows"}, "does not tell what its KV rows hold"),
    ],
)
def test_without_proof_of_the_handover_nothing_is_claimed(where: dict[str, str], words: str) -> None:
    result = transfer(faulty(**where))
    assert result.outcome == "unproven"
    assert words in result.message


def test_one_engine_is_no_pair() -> None:
    assert transfer(FakeEngine()).outcome == "unproven"


def test_drained_looks_at_both_sides() -> None:
    router = FakeRouter()
    result = judge("drained", router)
    assert (result.outcome, result.figures["free_rows"]) == ("passed", 2 * 64 + 4 * 64)
    assert router.beside_urls == [PREFILL, DECODE]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"prefill": "stuck"}, "prefill engine: 1 requests running"),
        ({"prefill": "scribble"}, "prefill engine: tp_rank 0: a free row was written"),
        ({"decode": "leak"}, "decode engine: tp_rank 2 holds 3 of 64 rows"),
    ],
)
def test_what_one_side_keeps_is_that_sides_fault(where: dict[str, str], words: str) -> None:
    result = judge("drained", faulty(**where))
    assert result.outcome == "failed"
    assert words in result.message


def test_a_side_that_tells_nothing_leaves_drained_unproven() -> None:
    result = judge("drained", faulty(prefill="no-proof"))
    assert result.outcome == "unproven"
    assert result.message.startswith("the prefill engine tells no KV rows")
