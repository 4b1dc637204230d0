"""When a handover has waited too long: what was awaited from whom, in words.

Any sign that the other end moves counts for all that is awaited from it: a rank serves its handovers in turn. What is
awaited from this engine itself, a prompt yet to be computed, has no limit here.
"""

from __future__ import annotations

import math

from harness.refengine.transfer.sending import Pair, Room

# How often to ask how far a write has come, where a transport has nothing to wait on.
PROGRESS_MS = 1

# Looks within one limit, so that it is exceeded by little; and at least once a second.
_LOOKS = 8
_LONGEST_S = 1.0


class SilenceClock:
    """Says when to look again; times are of `time.monotonic`, in seconds."""

    def __init__(self, limit: float) -> None:
        self._every = min(limit / _LOOKS, _LONGEST_S)
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time to look; if so, the next time is set."""
        if now < self._next:
            return False
        self._next = now + self._every
        return True

    def until_next_ms(self, now: float) -> int:
        """For a poll; never too early."""
        return max(0, math.ceil((self._next - now) * 1000))


def overdue_room(room: Room, *, registered: float, now: float, limit: float) -> str | None:
    """Why a prefill rank must give this room up; `registered` is when any decode rank last registered for any."""
    if not room.bound:
        if now - max(room.opened, registered) <= limit:
            return None
        return f"{_missing(room)} for {limit:g} s"
    return next((why for pair in room.pairs.values() if (why := _overdue_pair(pair, now, limit))), None)


def _missing(room: Room) -> str:
    if not room.pairs:
        return "no decode rank asked for it"
    link = next(iter(room.pairs.values())).link
    missing = sorted(link.destinations - room.pairs.keys())
    ranks = ", ".join(str(rank) for rank in missing)
    return f"decode rank{'s' if len(missing) > 1 else ''} {ranks} did not ask for it"


def _overdue_pair(pair: Pair, now: float, limit: float) -> str | None:
    awaited = pair.ended or pair in pair.link.work
    if pair.done or not awaited or now - max(pair.since, pair.link.moved) <= limit:
        return None
    rank = pair.link.tp_rank
    if pair.ended:
        return f"decode rank {rank} did not confirm its {pair.rows_sent} rows for {limit:g} s"
    return f"decode rank {rank} took none of its rows for {limit:g} s"
