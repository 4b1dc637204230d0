"""What a launcher hands to the processes it starts: the configuration and the numbers of inherited
descriptors.

It travels as one JSON argument, `--wiring`, so that no process reads files, ports or names to find the
others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import UsageError
from harness.refengine.config import EngineConfig

FLAG = "--wiring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """One child's view of its engine.

    `parent` is the process it must not outlive, `launcher` the one the user started. `pipes[r]` is this
    side's end of the socket between the front and rank r. `status` is the pipe to the launcher: one JSON
    object a line, written whole. `listener` is the bound HTTP socket (front only). `entry` is the command
    that starts a zygote; `rank` and `plumbing` are set where that command is to become one rank instead
    (start method spawn).
    """

    config: EngineConfig
    parent: int
    launcher: int
    pipes: tuple[int, ...]
    status: int
    listener: int = -1
    entry: tuple[str, ...] = ()
    rank: int | None = None
    plumbing: tuple[int, ...] = ()

    def to_argv(self) -> list[str]:
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return [FLAG, json.dumps({**values, "config": self.config.to_json()})]

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Wiring:
        """The inverse of `to_argv`. Raises UsageError for anything else: only a launcher calls this."""
        if len(argv) != 2 or argv[0] != FLAG:
            raise UsageError("this process is started by the launcher: use `harness engine serve`")
        values = json.loads(argv[1])
        return cls(
            **{
                **values,
                "config": EngineConfig.from_json(values["config"]),
                "pipes": tuple(values["pipes"]),
                "entry": tuple(values["entry"]),
                "plumbing": tuple(values["plumbing"]),
            }
        )

    def for_rank(self, rank: int, *, parent: int, plumbing: tuple[int, ...]) -> Wiring:
        """The wiring of one spawned rank; `plumbing` are the descriptors of its communicators."""
        return replace(self, parent=parent, rank=rank, plumbing=plumbing)
