"""How far each request's handover has come, counted rank by rank. No I/O.

Every rank of an engine tells its own part on its own pipe; what concerns all of them is said to rank 0 once all have
told, so that they act in the same step. A request is known here from when it is sent to rank 0 until it has ended or is
told to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.refengine.requests import Begin, Bound, GenerateRequest, Release, Said

Event = dict[str, Any]
Verdict = Bound | Release | Begin

_VERDICTS: dict[str, Callable[[str, Event], Verdict]] = {
    Said.BOUND: lambda rid, _: Bound(rid=rid),
    Said.SENT: lambda rid, _: Release(rid=rid),
    Said.ARRIVED: lambda rid, first: Begin(rid=rid, first=first),
}


@dataclass(slots=True)
class _Tally:
    rid: str
    room: int
    told: dict[str, set[int]] = field(default_factory=dict)
    first: Event = field(default_factory=dict)


class Handovers:
    """Tallies of the requests in flight that two engines share, by `GenerateRequest.handover_key`."""

    def __init__(self, tp_size: int) -> None:
        self._tp_size = tp_size
        self._tallies: dict[str, _Tally] = {}
        self._keys: dict[str, str] = {}

    def open(self, requests: Sequence[GenerateRequest]) -> None:
        """Count for those of `requests` that another engine shares. Raises UsageError for a room in use."""
        shared = [(one.handover.room, one) for one in requests if one.handover is not None]
        rooms = {tally.room for tally in self._tallies.values()}
        for room, _ in shared:
            if room in rooms:
                raise UsageError(f"bootstrap_room {room} is in flight already; every request needs its own")
            rooms.add(room)
        for room, request in shared:
            self._keys[request.rid] = request.handover_key
            self._tallies[request.handover_key] = _Tally(request.rid, room)

    def close(self, rid: str) -> None:
        """The request has ended, or been told to: what ranks still say of it is not heard. Harmless when repeated."""
        if key := self._keys.pop(rid, None):
            del self._tallies[key]

    def hear(self, rank: int, event: Event) -> Verdict | None:
        """Count what `rank` has told; what rank 0 is to be told, if all have by now."""
        tally = self._tallies.get(event["rid"])
        if tally is None:
            return None
        # The first token goes from one rank to one rank.
        tally.first = event.get("first") or tally.first
        told = tally.told.setdefault(event["type"], set())
        told.add(rank)
        return _VERDICTS[event["type"]](tally.rid, tally.first) if len(told) == self._tp_size else None

    def rid_of(self, key: str) -> str | None:
        """Which request in flight a rank means; None where it has ended."""
        tally = self._tallies.get(key)
        return None if tally is None else tally.rid
