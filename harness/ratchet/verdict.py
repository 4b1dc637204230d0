"""What a scan means against its baseline: which exit code, and what is to be said or written."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UsageError
from harness.ratchet.baseline import Baseline, Change, Increase, compare
from harness.ratchet.rules import OnUnparsed, Rules
from harness.ratchet.scanning import Scan


@dataclass(frozen=True, slots=True)
class Judgement:
    """`changes` is empty without a baseline, and where nothing differs from it."""

    scan: Scan
    changes: tuple[Change, ...]
    unparsed_fail: bool

    @property
    def grew(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.grew)

    @property
    def shrank(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.shrank)

    @property
    def exit_code(self) -> int:
        return 1 if self.grew or (self.unparsed_fail and self.scan.unparsed) else 0


def judge(scan: Scan, rules: Rules, baseline: Baseline | None) -> Judgement:
    """Hold a scan against a baseline; without one, only files that do not parse can fail it."""
    changes = compare(baseline, scan.sites) if baseline is not None else []
    return Judgement(scan, tuple(changes), unparsed_fail=rules.unparsed is OnUnparsed.FAIL)


def updated(judgement: Judgement, old: Baseline | None, *, allow_increase: str) -> Baseline:
    """The baseline to write. Raises UsageError where a number would go up without a reason, or where files were
    not seen, since their sites would leave the baseline unread."""
    unseen = judgement.scan.unparsed
    if unseen:
        raise UsageError(
            f"{len(unseen)} files could not be read, such as {unseen[0].file}: {unseen[0].why}; "
            "a baseline written now would forget their sites"
        )
    if old is None:
        return Baseline.of(judgement.scan.sites)
    grew = tuple(str(change) for change in judgement.grew)
    if grew and not allow_increase.strip():
        raise UsageError(
            f"--update only lets numbers down: {', '.join(grew)}; to let them up, --allow-increase REASON"
        )
    increases = old.increases + ((Increase(allow_increase, grew),) if grew else ())
    return Baseline.of(judgement.scan.sites, increases)
