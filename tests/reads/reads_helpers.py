"""Consumers and figures that no package has to be driven for."""

from __future__ import annotations

from typing import Any

from harness.reads.registry import BOTH, Consumer, Kind, Role


def fake_consumer(name: str, kind: Kind = Kind.SCALE, roles: tuple[Role, ...] = BOTH) -> Consumer:
    return Consumer(name=name, kind=kind, roles=roles, drives=("json:loads",), drive=lambda *_: 1)


def figures(source: str, *, changes: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """Those of a SCALE row in the first release that a test compares."""
    drives = [(8, 4, 2, 16), (4, 2, 8, 12), (2, 8, 4, 10)]
    names = ("seed", "ps", "live", "copy")
    numbers = [dict(zip(names, drive, strict=True)) for drive in drives]
    return {
        "consumer": "pool.size",
        "role": "target",
        "kind": "scale",
        "source": source,
        "expected": source,
        "numbers": [{**each, "used": each.get(source, 3)} for each in numbers],
        "where": "srt/pool.py:7",
        "absent": "",
        "changes": list(changes),
        "known_open": "",
        "version": "0.5.17",
    } | more
