"""From the checks of one attempt and the way its process ended to the attempt's outcome.

Phases: collect every finding (checks, missing checks, the process's end), then take the first rule
that applies. Failure rule: nothing unexplained is green. A check that left no record, a skip that no
suite declared, an exit status that no check accounts for: each is `failed` and named. The machine is
blamed only where a typed probe proved it, and never over a check that failed: such an attempt
would be retried, and its finding lost.
"""

from __future__ import annotations

import signal as signals
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from harness.verdict.outcomes import OPEN_CHECKS, RED_CHECKS, AttemptOutcome, CheckOutcome
from harness.verdict.records import CheckRecord

# A file of tests can have hundreds of failures; a reason is a line.
_TOLD = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How the process of an attempt ended, told by the execution loop.

    `exit_code` is None when `signal` ended it. `deadline` names the innermost deadline that passed
    (`launch`, `check parity`, `job`), `infra` holds what a typed probe proved, `interrupted` that
    the user or the runner ended the run.
    """

    exit_code: int | None = None
    signal: int | None = None
    deadline: str | None = None
    infra: str | None = None
    interrupted: bool = False


def classify_attempt(
    *,
    checks: Sequence[CheckRecord],
    declared: Sequence[str],
    end: ProcessEnd,
    excused: Collection[str] = (),
) -> tuple[AttemptOutcome, str]:
    """The attempt's outcome and, unless it passed, one line that says why.

    `declared` are the names of the checks that the job must execute, one entry per execution, `excused` of those
    that the suite leaves out, so that they may be skipped. A job
    process is expected to exit 0 unless a check failed or errored: open outcomes (`underpowered`,
    `unproven`) do not change its exit status.
    """
    red = findings(check for check in checks if check.outcome in RED_CHECKS)
    never_ran = _never_ran(checks, declared)
    if end.interrupted:
        return AttemptOutcome.INTERRUPTED, _join(["interrupted", *red, *never_ran])
    if end.infra is not None and not _any(checks, {CheckOutcome.FAILED}):
        return AttemptOutcome.INFRA, end.infra
    if end.deadline is not None:
        return AttemptOutcome.TIMEOUT, _join([f"deadline '{end.deadline}' passed", *red, *never_ran])
    reasons = [*red, *_undeclared_skips(checks, excused), *_died(end, explained=bool(red))]
    if not _any(checks, set(CheckOutcome) - {CheckOutcome.SKIPPED}):
        reasons.append("no check was executed")
    reasons += never_ran
    if reasons:
        machine = [] if end.infra is None else [f"the machine was at fault too: {end.infra}"]
        return AttemptOutcome.FAILED, _join([*reasons, *machine])
    if _any(checks, OPEN_CHECKS):
        return AttemptOutcome.INCONCLUSIVE, _join(findings(c for c in checks if c.outcome in OPEN_CHECKS))
    return AttemptOutcome.PASSED, ""


def findings(checks: Iterable[CheckRecord]) -> list[str]:
    """The clauses of a reason, the first ones where there are hundreds: whoever reports adds nothing to them."""
    told = [finding(check) for check in checks]
    return told if len(told) <= _TOLD else [*told[:_TOLD], f"{len(told) - _TOLD:,} more"]


def finding(check: CheckRecord) -> str:
    """One clause of a reason: the first line of the message is its summary, the rest stays in the record."""
    first_line = check.message.strip().partition("\n")[0]
    verb = {CheckOutcome.ERROR: "errored", CheckOutcome.FAILED: "failed"}.get(
        check.outcome, f"is {check.outcome.value}"
    )
    return f"{check.name} {verb}: {first_line}" if first_line else f"{check.name} {verb}"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; a number that this platform has no name for stays a number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _any(checks: Iterable[CheckRecord], outcomes: Iterable[CheckOutcome]) -> bool:
    wanted = set(outcomes)
    return any(check.outcome in wanted for check in checks)


def _never_ran(checks: Sequence[CheckRecord], declared: Sequence[str]) -> list[str]:
    """A check declared twice must have left two records; order is that of the declaration."""
    left = Counter(check.name for check in checks)
    missing = []
    for name in declared:
        if left[name]:
            left[name] -= 1
        else:
            missing.append(name)
    return [f"never ran: {', '.join(missing)}"] if missing else []


def _undeclared_skips(checks: Iterable[CheckRecord], excused: Collection[str]) -> list[str]:
    """A declared skip of a whole job never becomes an attempt, so only excused checks may be skipped here."""
    return [
        _join([f"{check.name} was skipped, which no suite declares"], detail=check.message)
        for check in checks
        if check.outcome is CheckOutcome.SKIPPED and check.name not in excused
    ]


def _died(end: ProcessEnd, *, explained: bool) -> list[str]:
    if end.signal is not None:
        return [f"job process was killed by {signal_name(end.signal)}"]
    if end.exit_code is None:
        return ["job process left no exit status"]
    # pytest exits 1 when a test failed: with a red check on record that says nothing new
    if end.exit_code == 0 or (explained and end.exit_code == 1):
        return []
    return [f"job process exited with status {end.exit_code}"]


def _join(clauses: Iterable[str], *, detail: str = "") -> str:
    text = "; ".join(clauses)
    return f"{text}: {detail}" if detail else text
