"""`interrupt`: what it does to a pair, and every way in which a request must not end or a side not go on."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from fake_killable import (
    DONE,
    Ending,
    KillablePair,
    answered,
    event,
    killable,
    tokens,
    told_of_an_error,
)

from harness.checks import CHECKS, CheckContext, CheckResult
from harness.engines import EngineClient
from harness.errors import UsageError
from harness.suites import InterruptParams

ONE = {"sides": ["decode"], "victims": ["rank"], "moments": ["handover"]}


def interrupt(pair: KillablePair | None, **params: Any) -> CheckResult:
    given = InterruptParams.model_validate(
        {"requests": 2, "max_new_tokens": 6, "within": "10s", "wait": "1s", **ONE, **params}
    )
    context = CheckContext(client=cast(EngineClient, pair), baseline=None, pair=cast(Any, pair))
    return CHECKS["interrupt"].run(given, context)


def test_every_side_victim_and_moment_is_a_round() -> None:
    with killable(answered) as pair:
        result = interrupt(pair, sides=["prefill", "decode"], victims=["engine", "rank"])
    assert result.outcome == "passed", result.message
    assert pair.did == [
        *("kill prefill None", "restart prefill", "kill prefill 3", "restart prefill"),
        *("kill decode None", "restart decode", "kill decode 3", "restart decode"),
    ]
    assert "4 kills: of 8 requests 8 were answered and 0 told of an error within 10 s" in result.message
    assert result.figures["rounds"][3]["ended"] == "rank 3 was killed by SIGKILL"


def test_an_error_in_the_servers_own_words_is_as_good_as_an_answer() -> None:
    with killable(told_of_an_error) as pair:
        result = interrupt(pair)
    assert result.outcome == "passed", result.message
    assert "0 were answered and 2 told of an error" in result.message
    assert "the decode engine has gone" in result.figures["rounds"][0]["errors"][0]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (lambda wanted: tokens(wanted), "ended without a clear error: http://127.0.0.1"),
        (lambda wanted: tokens(wanted - 1) + DONE, "ended with 5 of 6 tokens and no error"),
        (lambda wanted: DONE, "ended with 0 of 6 tokens and no error"),
        (lambda wanted: event(error={"message": "your fault", "code": 400}) + DONE, "without a clear error"),
        (lambda wanted: event(meta_info={}) + DONE, "without its count of tokens"),
    ],
)
def test_a_request_must_not_end_so(ending: Ending, words: str) -> None:
    with killable(ending) as pair:
        result = interrupt(pair)
    assert result.outcome == "failed"
    assert "decode rank killed at handover: interrupt-0" in result.message
    assert words in result.message


def test_a_request_must_not_hang() -> None:
    held = threading.Event()

    def hang(wanted: int) -> bytes:
        held.wait(30)
        return DONE

    with killable(hang) as pair:
        result = interrupt(pair, within="1s")
        held.set()
    assert result.outcome == "failed"
    assert "interrupt-1 had neither an answer nor an error 1 s after it" in result.message


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ({"survivor_faults": frozenset({"leak"})}, "the prefill engine: tp_rank 2 holds 3 of 64 rows"),
        (
            {"survivor_faults": frozenset({"scribble"})},
            "the prefill engine: tp_rank 0: a free row was written",
        ),
        ({"faults": frozenset({"immortal"})}, "the engine did not end"),
        ({"faults": frozenset({"other-answer"})}, "started again, it answers ("),
    ],
)
def test_what_else_must_not_come_of_a_kill(pair: dict[str, Any], words: str) -> None:
    with killable(answered, **pair) as running:
        result = interrupt(running)
    assert result.outcome == "failed"
    assert words in result.message


def test_a_kill_after_all_requests_proves_nothing() -> None:
    with killable(answered) as pair:
        pair.killed.set()
        result = interrupt(pair)
    assert result.outcome == "failed"
    assert "all requests had ended before it" in result.message


def test_without_a_pair_of_its_own_nothing_is_killed() -> None:
    with pytest.raises(UsageError, match="on a pair that a suite's job has launched"):
        interrupt(None)
