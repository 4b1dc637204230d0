"""What went wrong with an attempt, whether there is another, on which engines, and what the client is told. No I/O.

A request of which nothing has been answered is tried again where a side died, could not be reached or said that
it cannot serve now. Never where an engine refused the request itself: it would again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    UNAVAILABLE = "unavailable"  # the side answered 502 or 503
    SILENT = "silent"  # the side does not even describe itself
    UNFIT = "unfit"  # the two engines are no pair
    REFUSED = "refused"  # any other error status, told as the side's own answer


_RETRIED = frozenset({Cause.BROKEN, Cause.UNAVAILABLE, Cause.SILENT, Cause.UNFIT})
_UNAVAILABLE = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """URLs of the two engines of one attempt."""

    prefill: str
    decode: str

    def url(self, side: Side) -> str:
        return self.prefill if side is Side.PREFILL else self.decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended. `side` is who failed, None where only the two together do not fit; `body` is the
    side's own answer."""

    cause: Cause
    pair: Pair
    side: Side | None
    words: str
    status: int = HTTPStatus.BAD_GATEWAY
    body: bytes = b""

    @property
    def retried(self) -> bool:
        return self.cause in _RETRIED

    def __str__(self) -> str:
        if self.side is None:
            return f"prefill engine {self.pair.prefill} and decode engine {self.pair.decode}: {self.words}"
        return f"{self.side.value} engine {self.pair.url(self.side)}: {self.words}"


def answered(pair: Pair, side: Side, *, status: int, body: bytes) -> Failure:
    """The failure that an error status is."""
    cause = Cause.UNAVAILABLE if status in _UNAVAILABLE else Cause.REFUSED
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


def decisive(failures: Sequence[Failure]) -> Failure:
    """Which of the sides' failures, seen at the same moment, to act on: a refusal is about the request itself,
    and a dead side explains the complaint of the other."""
    order = [Cause.REFUSED, Cause.BROKEN, Cause.UNAVAILABLE]
    return min(failures, key=lambda failure: order.index(failure.cause))


def choose(
    prefill: Sequence[str],
    decode: Sequence[str],
    *,
    turn: int,
    met: Sequence[Failure],
    well: Callable[[str], bool],
) -> Pair | None:
    """The engines of the next attempt of a request whose earlier ones met `met`; None where no pair is left.

    Round robin by `turn`, but first those that did not fail this request, then those that are `well`.
    """
    unfit = {failure.pair for failure in met if failure.cause is Cause.UNFIT}
    blamed = [failure.pair.url(failure.side) for failure in met if failure.side is not None]

    def rank(pair: Pair) -> tuple[int, ...]:
        both = (pair.prefill, pair.decode)
        return (
            sum(blamed.count(url) for url in both),
            sum(not well(url) for url in both),
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
