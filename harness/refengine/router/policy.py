"""What went wrong with an attempt, whether there is another, on which engines, and what the client is told. No I/O.

A request of which nothing has been answered is tried again where a side died, could not be reached or said that
it cannot serve now. Never where an engine refused the request itself: it would again.

A 502 is an engine's complaint of the other one. What that other one says itself is the cause, the complaint its echo;
where it says nothing, that is what is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from harness.topology import Side

# The first wait before another attempt; each is twice the one before, up to the longest.
FIRST_BACKOFF_S = 0.1
DOUBLINGS = 4
LONGEST_BACKOFF_S = FIRST_BACKOFF_S * 2**DOUBLINGS
# Of an engine's answer that is no error in our shape.
MAX_WORDS = 200


class Cause(StrEnum):
    """Why an attempt ended without an answer."""

    BROKEN = "broken"  # nothing listens, or the connection ended before the answer did
    UNAVAILABLE = "unavailable"  # the side answered 503
    ECHO = "echo"  # the side answered 502: the other one failed it
    HELD = "held"  # the side still has the attempt before, and its rid
    ABORTED = "aborted"  # the prefill side alone was told to abort the request
    SILENT = "silent"  # the side does not even describe itself
    UNFIT = "unfit"  # the two engines are no pair
    REFUSED = "refused"  # any other error status, told as the side's own answer


_FINAL = frozenset({Cause.REFUSED, Cause.ABORTED})
_BY_STATUS: dict[int, Cause] = {
    HTTPStatus.BAD_GATEWAY: Cause.ECHO,
    HTTPStatus.SERVICE_UNAVAILABLE: Cause.UNAVAILABLE,
}
# Of an engine's refusal of a rid that it has.
_IN_FLIGHT = re.compile(r"answered 400: rid .* is in flight already")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """URLs of the two engines of one attempt."""

    prefill: str
    decode: str

    def url(self, side: Side) -> str:
        return self.prefill if side is Side.PREFILL else self.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended. `side` is who failed, None where that is between the two; `body` is the side's own
    answer."""

    cause: Cause
    pair: Pair
    side: Side | None
    words: str
    status: int = HTTPStatus.BAD_GATEWAY
    body: bytes = b""

    @property
    def retried(self) -> bool:
        return self.cause not in _FINAL

    def __str__(self) -> str:
        if self.side is None:
            return f"prefill engine {self.pair.prefill} and decode engine {self.pair.decode}: {self.words}"
        return f"{self.side.value} engine {self.pair.url(self.side)}: {self.words}"


def answered(pair: Pair, side: Side, *, status: int, body: bytes) -> Failure:
    """The failure that an error status is."""
    cause = _BY_STATUS.get(status, Cause.REFUSED)
    words = f"answered {status}: {words_of(body)}"
    return Failure(cause=cause, pair=pair, side=side, words=words, status=status, body=body)


def words_of(body: bytes) -> str:
    """The message of an engine's error; the beginning of what is no such error."""
    error = error_in(body)
    if error is not None and isinstance(error.get("message"), str):
        return str(error["message"])
    return body.decode(errors="replace").strip()[:MAX_WORDS] or "no words"


def error_in(body: bytes) -> dict[str, Any] | None:
    """The error object of an answer or event that is one."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = told.get("error") if isinstance(told, dict) else None
    return error if isinstance(error, dict) else None


def unless_held(failure: Failure) -> Failure:
    """`failure` of an attempt after the first, of a request with a rid: one that an engine has not given up yet is no
    mistake of the client's."""
    if failure.cause is not Cause.REFUSED or not _IN_FLIGHT.match(failure.words):
        return failure
    words = f"has not given up the attempt before: {failure.words}"
    return replace(failure, cause=Cause.HELD, words=words, status=HTTPStatus.BAD_GATEWAY)


def decisive(failures: Sequence[Failure], *, silent: Side | None) -> Failure:
    """What to act on of the failures of one or both sides; `silent` has not answered at all.

    A refusal is about the request itself; what a side says of itself comes before what the other says of it.
    """
    order = [Cause.REFUSED, Cause.ABORTED, Cause.BROKEN, Cause.HELD, Cause.UNAVAILABLE, Cause.ECHO]
    first = min(failures, key=lambda failure: order.index(failure.cause))
    if first.cause is not Cause.ECHO:
        return first
    if len(failures) > 1:
        words = ", ".join(f"{one.side} {one.words}" for one in failures)
        return replace(first, side=None, words=words)
    return replace(first, side=silent, words=f"has not answered; {first}") if silent else first


def choose(
    prefill: Sequence[str],
    decode: Sequence[str],
    *,
    turn: int,
    met: Sequence[Failure],
    well: Callable[[str], bool],
) -> Pair | None:
    """The engines of the next attempt of a request whose earlier ones met `met`; None where no pair is left.

    Round robin by `turn`, but first those that did not fail this request, then those that are `well`, then those that
    it has not been sent to: who failed it may be told wrongly.
    """
    unfit = {failure.pair for failure in met if failure.cause is Cause.UNFIT}
    blamed = [failure.pair.url(failure.side) for failure in met if failure.side is not None]
    used = [failure.pair.url(side) for failure in met for side in Side]

    def rank(pair: Pair) -> tuple[int, ...]:
        both = (pair.prefill, pair.decode)
        return (
            sum(blamed.count(url) for url in both),
            sum(not well(url) for url in both),
            sum(used.count(url) for url in both),
            (prefill.index(pair.prefill) - turn) % len(prefill),
            (decode.index(pair.decode) - turn) % len(decode),
        )

    pairs = [Pair(prefill=one, decode=other) for one in prefill for other in decode]
    return min((pair for pair in pairs if pair not in unfit), key=rank, default=None)


def backoff_s(failed: int) -> float:
    """Seconds to wait after the `failed`th failure (from 1) of a request."""
    return float(FIRST_BACKOFF_S * 2 ** min(failed - 1, DOUBLINGS))


def told(met: Sequence[Failure]) -> str:
    """What every attempt met."""
    if len(met) == 1:
        return str(met[0])
    if len(set(map(str, met))) == 1:
        return f"no answer in {len(met)} attempts, each time: {met[0]}"
    return f"no answer in {len(met)} attempts: " + "; ".join(
        f"({number}) {failure}" for number, failure in enumerate(met, 1)
    )
