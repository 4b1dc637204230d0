"""The text of one answer as it grows: whole characters only, and nothing of a stop string. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from harness.refengine.tokenizer import TextStream


class AnswerText:
    """`text` is what may be shown so far; it only ever grows. `matched` is the stop string that ended the
    answer.

    Two things are held back: the bytes of an unfinished character, and an end that may become a stop string.
    """

    def __init__(self, decoder: TextStream, stop: Sequence[str] = ()) -> None:
        self.text = ""
        self.matched: str | None = None
        self._stop = tuple(stop)
        self._decoder = decoder
        self._decoded = ""

    def push(self, token: int) -> None:
        """Add a token. After a match nothing more is added."""
        if self.matched is None:
            self._decoded += self._decoder.push(token)
            self._show(final=False)

    def finish(self) -> None:
        """The answer has ended: show what was held back."""
        if self.matched is None:
            self._decoded += self._decoder.finish()
            self._show(final=True)

    def _show(self, *, final: bool) -> None:
        found = [(place, stop) for stop in self._stop if (place := self._decoded.find(stop)) >= 0]
        if found:
            place, self.matched = min(found, key=lambda one: one[0])
            self.text = self._decoded[:place]
            return
        held = 0 if final else max((_overlap(self._decoded, stop) for stop in self._stop), default=0)
        self.text = self._decoded[: len(self._decoded) - held]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
