"""Watching an accuracy check while it asks: after each whole batch, is the end already known?

`broken` is the sequential test's word against the recorded baseline, `flips` and `unfinished` counts that can
only grow and are findings already, `refused` a batch in which every request failed. `fine` is only ever said
by the sequential test. Pure; made for one check, fed in the order of the questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.verdict.gates import EarlyStop, SprtVerdict
from harness.verdict.questions import QuestionOutcome, QuestionRecord
from harness.verdict.sample import Sample, pair


class StopMode(StrEnum):
    """Which certainty ends the asking."""

    BROKEN = "broken"
    BOTH = "both"
    NONE = "none"


class StopReason(StrEnum):
    """What ended the asking."""

    BROKEN = "broken"
    FINE = "fine"
    FLIPS = "flips"
    UNFINISHED = "unfinished"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A sequential test that has spoken; `alpha` is its share of the false alarms, `questions` how many would have
    been asked before the gates decide."""

    reason: StopReason
    test: EarlyStop
    alpha: float
    questions: int


class Watch:
    """State: `reason`, set once the asking may end; the sequential test, and the counts so far.

    `flips_from` and `unfinished_from` are the counts from which on the paired gates are findings whatever comes.
    """

    def __init__(
        self,
        *,
        mode: StopMode,
        test: EarlyStop | None = None,
        baseline: Sample | None = None,
        flips_from: int | None = None,
        unfinished_from: int | None = None,
    ) -> None:
        self.reason: StopReason | None = None
        self._mode = mode
        self._sprt = None if test is None else test.sprt()
        self._baseline = baseline
        self._flips_from = flips_from
        self._unfinished_from = unfinished_from
        self._flips = self._unfinished = 0

    def look(self, batch: Sequence[QuestionRecord]) -> bool:
        """Count one whole batch; True when the asking may end."""
        if self._mode is not StopMode.NONE and self.reason is None:
            new = Sample(records=tuple(batch))
            self.reason = self._refused(new) or self._sequential(new) or self._counted(new)
        return self.reason is not None

    def _refused(self, new: Sample) -> StopReason | None:
        return StopReason.REFUSED if new.count(QuestionOutcome.ERROR) == new.asked else None

    def _sequential(self, new: Sample) -> StopReason | None:
        if self._sprt is None:
            return None
        match self._sprt.update(new.correct, new.scored - new.correct):
            case SprtVerdict.BROKEN:
                return StopReason.BROKEN
            case SprtVerdict.FINE if self._mode is StopMode.BOTH:
                return StopReason.FINE
        return None

    def _counted(self, new: Sample) -> StopReason | None:
        if self._baseline is None:
            return None
        paired = pair(new, self._baseline)
        self._flips += len(paired.flips)
        self._unfinished += paired.left_unfinished
        if self._flips_from is not None and self._flips >= self._flips_from:
            return StopReason.FLIPS
        if self._unfinished_from is not None and self._unfinished >= self._unfinished_from:
            return StopReason.UNFINISHED
        return None
