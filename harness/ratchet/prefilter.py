"""What can be told of a file, and of each function in it, without parsing: that it holds no read.

Most of an engine never mentions topology, and most functions of the rest do not: only what is left is worth a walk.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from harness.ratchet.rules import Rules


@dataclass(frozen=True, slots=True)
class Prefilter:
    """Tells from the bytes of a file whether it may hold a read. Names in other than ASCII letters are not seen.

    A read off server args names a size and its source. A read by text quotes the size. A read of live topology
    counts only where it may be early (an initialisation call) or kept by a worker.
    """

    sizes: re.Pattern[bytes]
    args: re.Pattern[bytes]
    quoted: re.Pattern[bytes]
    live: re.Pattern[bytes]
    keepers: re.Pattern[bytes]

    @classmethod
    def of(cls, rules: Rules) -> Prefilter:
        sizes = "|".join(map(re.escape, {*rules.axis_of_any, *rules.axis_of_call}))
        # A glob as a pattern that fits at least as much: whatever is no letter of a name stands for any.
        keepers = [re.sub(r"\[.*\]|\W", r"\\w*", name) for name in rules.worker_classes]
        return cls(
            sizes=_compiled({*rules.axis_of_any, *rules.axis_of_call}),
            args=_compiled({*rules.args_names, *rules.args_types, *rules.args_getters}),
            quoted=re.compile(rf"[\"'](?:{sizes})[\"']".encode()),
            live=_compiled({*rules.live_getters, *rules.axis_of_call}),
            keepers=_compiled(
                {*rules.init_calls, *rules.state_names, *rules.state_types, *rules.worker_names},
                patterns=keepers,
            ),
        )

    def may_hold(self, source: bytes) -> bool:
        if not self.sizes.search(source):
            return False
        if self.args.search(source) or self.quoted.search(source):
            return True
        return bool(self.live.search(source) and self.keepers.search(source))


class Mentions:
    """Which lines of a parsed file mention a name of the rules, or one of `more`; asked for every function."""

    def __init__(self, text: str, rules: Rules, more: Iterable[str] = ()) -> None:
        names = {
            *rules.axis_of_any,
            *rules.axis_of_call,
            *rules.args_names,
            *rules.args_types,
            *rules.args_getters,
            *rules.live_getters,
            *rules.state_names,
            *rules.state_types,
            *rules.worker_names,
            *more,
        }
        self.lines: list[int] = []
        line, counted = 1, 0
        for match in re.finditer(_any_of(names), text):
            line += text.count("\n", counted, match.start())
            counted = match.start()
            self.lines.append(line)

    def between(self, first: int, last: int) -> bool:
        """Whether any line from `first` to `last` does."""
        at = bisect_left(self.lines, first)
        return at < len(self.lines) and self.lines[at] <= last


def _any_of(names: Iterable[str], patterns: Iterable[str] = ()) -> str:
    """Whole words only: `ps` is in every other word."""
    return rf"\b(?:{'|'.join([*map(re.escape, sorted(names)), *patterns]) or '(?!)'})\b"


def _compiled(names: Iterable[str], patterns: Iterable[str] = ()) -> re.Pattern[bytes]:
    return re.compile(_any_of(names, patterns).encode())
