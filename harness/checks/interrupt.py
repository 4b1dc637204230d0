"""`interrupt`: either side of a pair is killed while requests run, and everybody gets over it.

A round for each side, victim and moment: send requests, kill, see each request end with a whole answer or with the
router's own error before the deadline, see the other side hold nothing any more, start the killed side again, and
see it answer as before. It kills engines, so it runs on a pair that its own job has launched, after `drained`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import product

from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, random_prompt
from harness.checks.drained import left_behind
from harness.checks.flights import Flight
from harness.engines import Answer, EngineClient, GenerateRequest, PDPair
from harness.errors import RequestRefusedError, UsageError
from harness.suites import InterruptParams, Moment, Victim
from harness.topology import Side

baseline_use = BaselineUse.NEVER

SHOWN = 4
# The least status that says that the servers are at fault, and not the request.
SERVER_ERROR = 500
# How often a side is asked whether the requests have come: a prompt is computed in tenths of seconds.
LOOK_S = 0.01
PROBE = GenerateRequest(input_ids=random_prompt(33, seed=33), max_new_tokens=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One kill and what came of it: `how` the victim ended, the errors that requests got, and what was wrong."""

    side: Side
    victim: Victim
    moment: Moment
    how: str
    answered: int
    errors: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def told(self) -> str:
        return f"{self.side} {self.victim} killed at {self.moment}"


def baseline_asks(params: InterruptParams) -> list[RequestGroup]:
    return []


def run(params: InterruptParams, context: CheckContext) -> CheckResult:
    if context.pair is None:
        raise UsageError("check interrupt kills engines; allowed: on a pair that a suite's job has launched")
    healthy = context.client.generate(PROBE)
    rounds = [
        _round(params, context.pair, side, victim, moment, healthy=healthy)
        for side, victim, moment in product(params.sides, params.victims, params.moments)
    ]
    return _judge(rounds, params)


def _judge(rounds: Sequence[Round], params: InterruptParams) -> CheckResult:
    faults = [f"{each.told}: {fault}" for each in rounds for fault in each.faults]
    answered, errors = sum(each.answered for each in rounds), sum(len(each.errors) for each in rounds)
    figures = {
        "rounds": [
            {
                "side": each.side.value,
                "victim": each.victim.value,
                "moment": each.moment.value,
                "ended": each.how,
                "answered": each.answered,
                "errors": list(each.errors),
            }
            for each in rounds
        ],
    }
    if faults:
        return failed(f"{len(faults)} faults: " + "; ".join(faults[:SHOWN]), faults=faults, **figures)
    return passed(
        f"{len(rounds)} kills: of {len(rounds) * params.requests} requests {answered} were answered and {errors} "
        f"told of an error within {params.within:g} s; the other side was drained and the killed one used again "
        "each time",
        **figures,
    )


def _round(
    params: InterruptParams, pair: PDPair, side: Side, victim: Victim, moment: Moment, *, healthy: Answer
) -> Round:
    # Without the launcher's knowledge of who died: what the router says by itself is looked at.
    with closing(EngineClient(pair.client.url)) as client, client.deadline("interrupt", _patience(params)):
        flights = [
            Flight(client, request, rid=f"interrupt-{n}") for n, request in enumerate(_requests(params))
        ]
        for flight in flights:
            flight.start()
        _await(moment, pair.engine(side).client, flights, seconds=params.within)
        late = all(flight.ended for flight in flights)
        how = pair.kill(side, rank=_last_rank(pair, side) if victim is Victim.RANK else None)
        killed = time.monotonic()
        for flight in flights:
            flight.join(max(0.0, killed + params.within - time.monotonic()))
        faults = [fault for flight in flights for fault in _flight_faults(flight, within=params.within)]
    if late:
        faults.append("all requests had ended before it: longer ones are needed")
    if not how:
        faults.append("the engine did not end")
    faults += [
        f"the {side.other} engine: {left}"
        for left in left_behind(pair.engine(side.other).client, wait=params.wait)
    ]
    pair.restart(side)
    faults += _used_again(pair, healthy, wait=params.wait)
    return Round(
        side=side,
        victim=victim,
        moment=moment,
        how=how,
        answered=sum(flight.error is None for flight in flights),
        errors=tuple(str(flight.error) for flight in flights if flight.error is not None),
        faults=tuple(faults),
    )


def _patience(params: InterruptParams) -> float:
    """Longer than a round can wait for its requests: one of the check's own bounds is what a hang is told by."""
    return 3 * params.within


def _requests(params: InterruptParams) -> list[GenerateRequest]:
    return [
        GenerateRequest(
            input_ids=random_prompt(params.prompt_len, seed=number), max_new_tokens=params.max_new_tokens
        )
        for number in range(params.requests)
    ]


def _last_rank(pair: PDPair, side: Side) -> int:
    """Any rank would do; rank 0 alone is special, as it leads the others."""
    return pair.engine(side).spec.parallel.tp_size - 1


def _await(moment: Moment, engine: EngineClient, flights: Sequence[Flight], *, seconds: float) -> None:
    """Until the engine has requests, or until one is being answered; no longer than there is something to wait for."""

    def come() -> bool:
        if all(flight.ended for flight in flights):
            return True
        if moment is Moment.ANSWERING:
            return any(flight.answering for flight in flights)
        info = engine.server_info()
        return bool(info.running or info.waiting)

    engine.wait_until(come, seconds=seconds, every_s=LOOK_S)


def _flight_faults(flight: Flight, *, within: float) -> Iterator[str]:
    """How a request must not end: not at all, in the middle without a word, or with anything but a server's error."""
    wanted, error = flight.request.max_new_tokens, flight.error
    if not flight.ended:
        yield f"{flight.rid} had neither an answer nor an error {within:g} s after it"
    elif error is None and flight.tokens != wanted:
        yield f"{flight.rid} ended with {flight.tokens} of {wanted} tokens and no error"
    elif error is not None and not (isinstance(error, RequestRefusedError) and error.status >= SERVER_ERROR):
        yield f"{flight.rid} ended without a clear error: {error}"


def _used_again(pair: PDPair, healthy: Answer, *, wait: float) -> Iterator[str]:
    """Whether the router sends requests to the side that was started again, and gets what it got before."""
    answers: list[Answer] = []
    refused: list[RequestRefusedError] = []

    def answered() -> bool:
        try:
            answers.append(pair.client.generate(PROBE))
        except RequestRefusedError as error:
            refused.append(error)
        return bool(answers)

    if not pair.client.wait_until(answered, seconds=wait):
        yield f"started again, it was not used within {wait:g} s: {refused[-1]}"
    elif answers[0].tokens != healthy.tokens:
        yield f"started again, it answers {answers[0].tokens} to what was answered {healthy.tokens}"
