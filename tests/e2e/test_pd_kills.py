"""kill -9 of any part of a pair at any moment: every request ends, survivors give everything back, the pair goes on.

Three processes started from the command line, several requests in flight, and somebody outside who looks at
`/server_info` to choose the moment. One trio for all tests: each leaves it whole, which is what the next one needs.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from enum import StrEnum
from typing import Any

import pytest
from pd_processes import Outcome, Trio, Victim, ask, listening, moved
from runs import gone, until

# Small chunks and pages, so that a prompt is many steps and many blocks; answers of many steps.
ENGINE = ["--page-size", "4", "--chunked-prefill-size", "16"]
PREFILL = ["--tp", "2", "--dcp", "1", *ENGINE]
DECODE = ["--tp", "4", "--dcp", "4", *ENGINE]
LENGTHS = (3, 40, 300, 600, 500, 700)
NEW_TOKENS = 60


class Moment(StrEnum):
    """When somebody outside kills."""

    BEFORE = "before the requests"
    PROMPT = "while a prompt is computed"
    TRANSFER = "while KV travels"
    DECODE = "while answers are computed"


def body(number: int, length: int) -> dict[str, Any]:
    rng = random.Random(length)
    return {
        "input_ids": [rng.randrange(256) for _ in range(length)],
        "sampling_params": {"max_new_tokens": NEW_TOKENS, "temperature": 0.0, "ignore_eos": True},
        "stream": number % 2 == 0,
    }


BODIES = [body(number, length) for number, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    made = Trio(tmp_path_factory.mktemp("trio"), prefill=PREFILL, decode=DECODE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected(trio: Trio) -> list[list[int] | None]:
    """What each request is answered where nothing is killed."""
    answers = [ask(trio, one, lambda events: None).answer for one in BODIES]
    assert all(answer is not None and len(answer) == NEW_TOKENS for answer in answers)
    return answers


class Burst:
    """All requests in flight at once."""

    def __init__(self, trio: Trio) -> None:
        self._trio = trio
        self._clients = ThreadPoolExecutor(len(BODIES))
        self._events = dict.fromkeys(range(len(BODIES)), 0)
        self._sent_before = moved(trio.info("prefill"), "sent") if trio_is_up(trio, "prefill") else 0
        self._flights: list[Future[Outcome]] = []

    def send(self) -> None:
        self._flights = [self._clients.submit(self._fly, number) for number in range(len(BODIES))]

    def wait_for(self, moment: Moment) -> None:
        until({Moment.PROMPT: self._computes, Moment.TRANSFER: self._travels, Moment.DECODE: self._answers}[moment],
              moment.value)  # fmt: skip

    def outcomes(self) -> list[Outcome]:
        self._clients.shutdown()
        return [flight.result() for flight in self._flights]

    def _fly(self, number: int) -> Outcome:
        return ask(self._trio, BODIES[number], lambda events: self._events.update({number: events}))

    def _computes(self) -> bool:
        return bool(self._trio.info("prefill")["running"])

    def _travels(self) -> bool:
        sent = moved(self._trio.info("prefill"), "sent") > self._sent_before
        return sent and any(rank["transfer"]["open"] for rank in self._trio.info("decode")["ranks"])

    def _answers(self) -> bool:
        return any(3 <= events < NEW_TOKENS - 20 for events in self._events.values())


def trio_is_up(trio: Trio, name: str) -> bool:
    process = trio.engines[name].process
    return process is not None and process.poll() is None


def check_outcome(outcome: Outcome, expected: list[int] | None, victim: Victim) -> None:
    """The right answer, or an error in words; a connection breaks only where the router itself was killed."""
    if outcome.answer is not None:
        assert outcome.answer == expected
    elif outcome.broken is not None:
        assert victim is Victim.ROUTER, outcome
    else:
        assert outcome.status in (502, 503, 504), outcome
        assert outcome.error, outcome
        assert victim is not Victim.ROUTER, outcome


POINTS = [
    (Victim.PREFILL, Moment.BEFORE),
    (Victim.PREFILL, Moment.TRANSFER),
    (Victim.PREFILL_RANK, Moment.PROMPT),
    (Victim.PREFILL_RANK, Moment.DECODE),
    (Victim.DECODE, Moment.PROMPT),
    (Victim.DECODE, Moment.DECODE),
    (Victim.DECODE_RANK, Moment.BEFORE),
    (Victim.DECODE_RANK, Moment.TRANSFER),
    (Victim.ROUTER, Moment.TRANSFER),
    (Victim.ROUTER, Moment.DECODE),
]


@pytest.mark.parametrize(("victim", "moment"), POINTS, ids=str)
def test_a_kill_costs_requests_and_nothing_else(
    trio: Trio, expected: list[list[int] | None], victim: Victim, moment: Moment
) -> None:
    burst = Burst(trio)
    if moment is Moment.BEFORE:
        trio.kill(victim)
        burst.send()
    else:
        burst.send()
        burst.wait_for(moment)
        trio.kill(victim)
    outcomes = burst.outcomes()
    for outcome, answer in zip(outcomes, expected, strict=True):
        check_outcome(outcome, answer, victim)
    assert any(outcome.answer is None for outcome in outcomes), "the kill came too late to be noticed"
    assert not listening(trio.parts[victim.part].port)
    for name in trio.engines:
        if name != victim.part:
            trio.wait_drained(name)
    trio.restart(victim)
    again = [ask(trio, one, lambda events: None) for one in BODIES[:3]]
    assert [outcome.answer for outcome in again] == expected[:3], again


def test_a_request_that_nobody_can_serve_ends_with_words(
    trio: Trio, expected: list[list[int] | None]
) -> None:
    """Both engines are gone: the router says so, of which side, and serves again when they are back."""
    for victim in (Victim.PREFILL, Victim.DECODE):
        trio.kill(victim)
    outcome = ask(trio, BODIES[1], lambda events: None)
    assert outcome.status in (502, 503)
    assert outcome.error is not None
    assert trio.engines["prefill"].url in outcome.error or trio.engines["decode"].url in outcome.error
    trio.restart(Victim.PREFILL, Victim.DECODE)
    assert ask(trio, BODIES[1], lambda events: None).answer == expected[1]
    for name in trio.engines:
        trio.wait_drained(name)


def test_what_is_left_in_the_logs_are_sentences(trio: Trio) -> None:
    """After all of the above: whoever died, and whoever saw it, said so without a traceback."""
    for part in trio.parts.values():
        log = part.log.read_text()
        assert "Traceback" not in log, log[: log.index("Traceback") + 3000]
    assert "was killed by SIGKILL" in trio.engines["prefill"].log.read_text()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    """A trio that waits for a few seconds only: for what says nothing and does not end either."""
    limit = ["--transfer-timeout", "3"]
    made = Trio(
        tmp_path_factory.mktemp("hasty"),
        prefill=[*PREFILL, *limit],
        decode=[*DECODE, *limit],
        request_timeout=5,
    )
    yield made
    made.close()


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_stopped_rank_costs_requests_their_time_only(hasty: Trio, side: str) -> None:
    """Stopped, not dead: no connection ends. All requests end at the limits; when it goes on, everything drains."""
    burst = Burst(hasty)
    burst.send()
    burst.wait_for(Moment.TRANSFER)
    rank = hasty.engines[side].pids["ranks"][-1]
    os.kill(rank, signal.SIGSTOP)
    try:
        outcomes = burst.outcomes()
    finally:
        os.kill(rank, signal.SIGCONT)
    for outcome in outcomes:
        assert outcome.answer is not None or (outcome.status in (502, 504) and outcome.error), outcome
    assert any(outcome.answer is None for outcome in outcomes)
    for name in hasty.engines:
        hasty.wait_drained(name)
    until(
        lambda: ask(hasty, BODIES[0], lambda events: None).answer is not None, "requests are answered again"
    )


def test_nothing_is_left_when_all_are_told_to_stop(hasty: Trio) -> None:
    """In mid-request: exit code 0 from each, no process, no port."""
    ports = [part.port for part in hasty.parts.values()]
    tree = [pid for part in hasty.parts.values() for pid in part.tree()]
    burst = Burst(hasty)
    burst.send()
    burst.wait_for(Moment.TRANSFER)
    assert hasty.close() == {"router": 0, "decode": 0, "prefill": 0}
    assert all(outcome.answer or outcome.error or outcome.broken for outcome in burst.outcomes())
    until(lambda: gone(tree), "every process ends")
    assert not any(listening(port) for port in ports)
