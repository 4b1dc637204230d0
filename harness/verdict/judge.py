"""From the attempts of a job to its verdict, and from all verdicts to the exit status of a run.

Both are pure functions of the tables in docs/verdicts.md. Failure rule: a red attempt is never hidden by
what came before or after it: 1 beats 3 beats 0, within a job as within a run. Only the grouping of
`infra` attempts depends on order, because a retry belongs to the attempt it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.verdict.outcomes import AttemptOutcome, CheckOutcome, Verdict
from harness.verdict.records import AttemptRecord

# An attempt that the machine spoiled is repeated at most twice: the third proof is the verdict.
INFRA_LIMIT = 3

# Order matters: with several kinds of red and no pass, the first kind here is the verdict.
_RED = {AttemptOutcome.FAILED: Verdict.FAILED, AttemptOutcome.TIMEOUT: Verdict.TIMEOUT}

EXIT_OK, EXIT_RED, EXIT_EMPTY, EXIT_OPEN, EXIT_INTERRUPT = 0, 1, 2, 3, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict as the exit status needs it: `asked_by_name` says that the user named that profile."""

    verdict: Verdict
    asked_by_name: bool


def needs_retry(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether the last attempt is to be repeated: only `infra` is, at most twice in a row."""
    return 0 < _trailing_infra(attempts) < INFRA_LIMIT


def speaks_of_code(attempt: AttemptRecord) -> bool:
    """Whether an attempt says something about the code that another run could contradict.

    A pass does, and a check that failed. An engine that was killed, an error or a deadline may be the
    machine's doing: as history it would turn every later pass of that commit into a flake.
    """
    if attempt.outcome is AttemptOutcome.PASSED:
        return True
    return attempt.outcome is AttemptOutcome.FAILED and any(
        check.outcome is CheckOutcome.FAILED for check in attempt.checks
    )


def judge_job(
    attempts: Sequence[AttemptRecord],
    *,
    not_run: str | None = None,
    skipped: str | None = None,
    earlier: Iterable[AttemptOutcome] = (),
) -> tuple[Verdict, str]:
    """The verdict of a job and, unless it passed at once, one line that says why.

    `not_run` and `skipped` carry the reason why the job did not (fully) run; a red attempt stands
    against `not_run`. `earlier` are outcomes of the same job at the same engine SHA in other runs, of
    attempts that speak of the code: together with this run's they may prove a flake.
    """
    if skipped is not None:
        return Verdict.SKIPPED, skipped
    red = _judge_red(attempts, earlier=frozenset(earlier))
    if red is not None:
        return red
    if not_run is not None:
        return Verdict.NOT_RUN, not_run
    if not attempts:
        return Verdict.NOT_RUN, "no attempt was made"
    return _judge_rest(attempts)


def exit_code(
    jobs: Sequence[Judged], *, require_all: bool = False, allow_flaky: bool = False, interrupted: bool = False
) -> int:
    """The exit status of a run: 130 for an interrupt, 2 for no job at all, else 1 beats 3 beats 0.

    A run in which nothing ran proved nothing, so it is 3 whoever asked for what.
    """
    if interrupted:
        return EXIT_INTERRUPT
    if not jobs:
        return EXIT_EMPTY
    if nothing_ran(job.verdict for job in jobs):
        return EXIT_OPEN
    shares = {_exit_share(job, require_all=require_all, allow_flaky=allow_flaky) for job in jobs}
    return next(share for share in (EXIT_RED, EXIT_OPEN, EXIT_OK) if share in shares)


def nothing_ran(verdicts: Iterable[Verdict | None]) -> bool:
    """Whether a run's jobs are all `not_run`. A declared skip is a decision of the suite, so it is not that."""
    return set(verdicts) == {Verdict.NOT_RUN}


def _exit_share(job: Judged, *, require_all: bool, allow_flaky: bool) -> int:
    match job.verdict:
        case Verdict.PASSED | Verdict.SKIPPED:
            return EXIT_OK
        case Verdict.FLAKY:
            return EXIT_OK if allow_flaky else EXIT_RED
        case Verdict.NOT_RUN:
            return EXIT_OPEN if job.asked_by_name or require_all else EXIT_OK
        case Verdict.INCONCLUSIVE | Verdict.INFRA:
            return EXIT_OPEN
        case Verdict.FAILED | Verdict.TIMEOUT:
            return EXIT_RED


def _judge_red(
    attempts: Sequence[AttemptRecord], *, earlier: frozenset[AttemptOutcome]
) -> tuple[Verdict, str] | None:
    """`failed`, `timeout` or `flaky`, or None where no attempt of this run (or, after a pass, of an
    earlier one) is red."""
    red = [attempt for attempt in attempts if attempt.outcome in _RED]
    passed = [attempt for attempt in attempts if attempt.outcome is AttemptOutcome.PASSED]
    if red and passed:
        return Verdict.FLAKY, f"{len(passed)} passed, {len(red)} did not; {_first_reason(red)}"
    if red and AttemptOutcome.PASSED in earlier and all(speaks_of_code(attempt) for attempt in red):
        return Verdict.FLAKY, f"passed before at the same engine SHA; {_first_reason(red)}"
    if passed and earlier & set(_RED):
        return Verdict.FLAKY, "passed now, failed before at the same engine SHA"
    for outcome, verdict in _RED.items():
        of_kind = [attempt for attempt in red if attempt.outcome is outcome]
        if of_kind:
            return verdict, of_kind[0].reason if len(attempts) == 1 else _first_reason(of_kind)
    return None


def _judge_rest(attempts: Sequence[AttemptRecord]) -> tuple[Verdict, str]:
    """Attempts without any red one: `infra`, `not_run`, `inconclusive` or `passed`."""
    infra = [attempt for attempt in attempts if attempt.outcome is AttemptOutcome.INFRA]
    if _longest_infra(attempts) >= INFRA_LIMIT or _trailing_infra(attempts):
        return Verdict.INFRA, f"the machine failed {_times(len(infra))}; last: {infra[-1].reason}"
    if any(attempt.outcome in (AttemptOutcome.INTERRUPTED, None) for attempt in attempts):
        return Verdict.NOT_RUN, "the run ended first"
    open_ = [attempt for attempt in attempts if attempt.outcome is AttemptOutcome.INCONCLUSIVE]
    if open_:
        return Verdict.INCONCLUSIVE, open_[0].reason
    if infra:
        return Verdict.PASSED, f"after the machine failed {_times(len(infra))}: {infra[-1].reason}"
    return Verdict.PASSED, ""


def _first_reason(attempts: Sequence[AttemptRecord]) -> str:
    first = min(attempts, key=lambda attempt: attempt.n)
    return f"attempt {first.n}: {first.reason}"


def _infra_streaks(attempts: Sequence[AttemptRecord]) -> list[tuple[bool, int]]:
    """(is infra, length) of each run of neighbouring attempts."""
    return [
        (infra, sum(1 for _ in group))
        for infra, group in groupby(attempts, key=lambda attempt: attempt.outcome is AttemptOutcome.INFRA)
    ]


def _longest_infra(attempts: Sequence[AttemptRecord]) -> int:
    return max((length for infra, length in _infra_streaks(attempts) if infra), default=0)


def _trailing_infra(attempts: Sequence[AttemptRecord]) -> int:
    streaks = _infra_streaks(attempts)
    return streaks[-1][1] if streaks and streaks[-1][0] else 0


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
