"""The end of a run on a terminal: counts first, then per job what ran, what it proved, and what is missing.

The first line counts verdicts, and says so where nothing ran. Jobs follow suite by suite, the red ones last,
where a user looks first: each with its reason, the place of its log and the command that runs it again. Also
what `harness show` prints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from harness.report.wording import (
    RUNNING,
    VERDICT_LOOKS,
    WAITING,
    attempt_style,
    check_style,
    count_tests,
    devices,
    duration,
    first_line,
    key_figures,
    look,
    option_values,
    printable,
    reproduce,
    show_again,
    target_label,
    told_by,
    what_it_says,
)
from harness.verdict import (
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
    nothing_ran,
)

# More passed checks than this are counted, not listed: a suite of pytest files holds thousands.
_LISTED_CHECKS = 12

# Lines of a check's message that are shown; the whole is in the log and the JSON.
_MESSAGE_LINES = 12

# Columns of the labels, wide enough for `attempt 1`, so that facts of all jobs line up.
_LABEL_COLUMNS = 9

# Columns that a wrapped message keeps on the narrowest terminal.
_LEAST_TEXT = 20

# `Text.wrap` asks a console for defaults only; the width is always given.
_WRAPPER = Console()

# Calm first, red last: the end of the output is what stays on the screen.
_ORDER = (
    Verdict.SKIPPED,
    Verdict.NOT_RUN,
    Verdict.PASSED,
    None,
    Verdict.INCONCLUSIVE,
    Verdict.INFRA,
    Verdict.FLAKY,
    Verdict.TIMEOUT,
    Verdict.FAILED,
)

# What is listed first where not all of it is.
_WORST = (CheckOutcome.ERROR, CheckOutcome.FAILED)

# Verdicts that a user acts on: they get log and command.
_TO_ACT_ON = frozenset(_ORDER[4:])


def print_summary(run: RunRecord, console: Console) -> None:
    """Prints the summary: wrapped to a terminal's width, one line a fact in a pipe or file."""
    _print(render_summary(run, width=_width(console)), console)


def print_job(run: RunRecord, job: JobRecord, console: Console) -> None:
    """Prints everything about one job of the run."""
    _print(render_job(job, run=run, width=_width(console)), console)


def _print(text: Text, console: Console) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _width(console: Console) -> int | None:
    return console.width if console.is_terminal else None


def counts(run: RunRecord) -> Text:
    """`5 passed, 1 failed, 3 not run`: verdicts without a job are left out."""
    found = Counter(look(job).word for job in run.jobs)
    looks = [each for each in (*VERDICT_LOOKS.values(), RUNNING, WAITING) if found[each.word]]
    parts = [Text(f"{found[each.word]} {each.word}", style=each.style) for each in looks]
    return Text(", ").join(parts) if parts else Text("nothing was selected", style="yellow")


def render_summary(run: RunRecord, *, width: int | None = None) -> Text:
    """The whole summary; messages are wrapped to `width` columns if it is given, paths and commands never."""
    jobs = sorted(run.jobs, key=lambda job: (_ORDER.index(job.verdict), job.suite, job.profile))
    lines = [_first_line(run)]
    for job in jobs:
        facts = [*_target(job), *_attempts(job), *_checks(job, run), *_ending(job, run)]
        lines += [Text(), *_lines(job, facts, width)]
    return Text("\n").join(lines)


def render_job(job: JobRecord, *, run: RunRecord | None = None, width: int | None = None) -> Text:
    """Everything about one job: what ran where, every check with its figures, log and command."""
    facts = [*_identity(job), *_attempts(job, all_of_them=True)]
    for check in job.last_checks:
        facts.append(_check_fact(check))
        figures = key_figures(check.figures)
        if check.message and figures:
            facts.append(_Fact(label=Text(), text=_dim(figures)))
    return Text("\n").join(_lines(job, [*facts, *_ending(job, run, always=True)], width))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """One labelled fact about a job."""

    label: Text
    text: Text
    wraps: bool = True

    def lines(self, width: int | None) -> Iterator[Text]:
        """The fact with a hanging indent; words longer than the width are cut, never lost."""
        indent = " " * (2 + max(_LABEL_COLUMNS, self.label.cell_len) + 2)
        wrapped = self._wrapped(None if width is None else max(_LEAST_TEXT, width - len(indent)))
        for number, line in enumerate(wrapped):
            label = Text("  ").append_text(self.label) if number == 0 else Text()
            label.pad_right(len(indent) - label.cell_len)
            label.append_text(line).rstrip()
            yield label

    def _wrapped(self, room: int | None) -> list[Text]:
        if room is None or not self.wraps:
            return list(self.text.split("\n", allow_blank=True))
        return list(self.text.wrap(_WRAPPER, room))


def _first_line(run: RunRecord) -> Text:
    line = Text()
    if run.interrupted:
        line.append("interrupted: ", style="yellow")
    elif nothing_ran(job.verdict for job in run.jobs):
        line.append("nothing ran: ", style="yellow")
    line.append_text(counts(run))
    gpu_minutes = sum(job.gpu_minutes for job in run.jobs)
    if gpu_minutes:
        line.append(f", {gpu_minutes:.1f} GPU-minutes", style="dim")
    line.append(f"   run {run.run}", style="dim")
    planted = option_values(run.argv, "--fault")
    return line.append(f"   with {', '.join(planted)} planted", style="yellow") if planted else line


def _head(job: JobRecord) -> Text:
    how = look(job)
    head = Text().append(f"{how.glyph} ", style=how.style).append(printable(job.id), style="bold")
    head.append(f"  {how.word}", style=how.style)
    return head.append(f"  {duration(job.seconds)}", style="dim") if job.seconds else head


def _lines(job: JobRecord, facts: Sequence[_Fact], width: int | None) -> list[Text]:
    return [_head(job), *(line for fact in facts for line in fact.lines(width))]


def _identity(job: JobRecord) -> Iterator[_Fact]:
    if job.matrix:
        point = ", ".join(f"{key} {value}" for key, value in job.matrix.items())
        yield _Fact(label=_dim("matrix"), text=Text(printable(point)))
    if job.engine_sha:
        yield _Fact(label=_dim("engine"), text=Text(printable(job.engine_sha)))


def _target(job: JobRecord) -> Iterator[_Fact]:
    """Which package its tests looked at, and in which version: the same words mean another thing in another one."""
    if job.attempts and (label := target_label(job.engine_sha)):
        yield _Fact(label=_dim("target"), text=Text(label))


def _attempts(job: JobRecord, *, all_of_them: bool = False) -> Iterator[_Fact]:
    """Every attempt where there was more than one: a retry never erases the first failure."""
    if len(job.attempts) < 2 and not all_of_them:
        return
    for attempt in job.attempts:
        text = Text().append(attempt.outcome or "running", style=attempt_style(attempt.outcome))
        text.append(f"  {first_line(attempt.reason)}" if attempt.reason else "")
        where = " ".join(filter(None, [printable(attempt.node), devices(attempt.devices)]))
        if all_of_them:
            text.append(f"  {duration(attempt.seconds)}" + (f" on {where}" if where else ""), style="dim")
        yield _Fact(label=_dim(f"attempt {attempt.n}"), text=text)


def _checks(job: JobRecord, run: RunRecord) -> Iterator[_Fact]:
    shown, hidden = _listed(job)
    yield from map(_check_fact, shown)
    if hidden:
        rest = f"{len(hidden):,} more: {count_tests(hidden)}"
        yield _check_fact(CheckRecord(name="checks", outcome=hidden[0].outcome, message=rest))
        command = show_again(run.run, job, argv=run.argv)
        yield _Fact(label=_dim("all"), text=Text(printable(command), style="bold"), wraps=False)


def _ending(job: JobRecord, run: RunRecord | None, *, always: bool = False) -> Iterator[_Fact]:
    """Why, where it is not told yet; where to look and how to do it again, where a user acts."""
    if job.reason and job.verdict is not Verdict.PASSED and not told_by(job.last_checks, job.reason):
        yield _Fact(label=_dim("why"), text=Text(first_line(job.reason)))
    if job.verdict not in _TO_ACT_ON and not always:
        return
    if job.attempts and job.attempts[-1].log_path:
        yield _Fact(label=_dim("log"), text=Text(printable(job.attempts[-1].log_path)), wraps=False)
    command = reproduce(job, argv=() if run is None else run.argv)
    yield _Fact(label=_dim("again"), text=Text(printable(command), style="bold"), wraps=False)


def _dim(text: str) -> Text:
    return Text(text, style="dim")


def _listed(job: JobRecord) -> tuple[list[CheckRecord], list[CheckRecord]]:
    """The checks to show, quiet ones as a count; and those that did not pass and are one too many, worst first.

    Errors come before failures: an exception is never what is left out.
    """
    checks = job.last_checks
    if len(checks) <= _LISTED_CHECKS:
        return list(checks), []
    passed = [check for check in checks if check.outcome is CheckOutcome.PASSED]
    quiet = [check for check in passed if not check.message]
    count = CheckRecord(name="checks", outcome=CheckOutcome.PASSED, message=count_tests(quiet))
    others = sorted(
        (check for check in checks if check.outcome is not CheckOutcome.PASSED),
        key=lambda check: _WORST.index(check.outcome) if check.outcome in _WORST else len(_WORST),
    )
    shown = [*([count] if quiet else []), *(check for check in passed if check.message)]
    return [*shown, *others[:_LISTED_CHECKS]], others[_LISTED_CHECKS:]


def _check_fact(check: CheckRecord) -> _Fact:
    style = check_style(check.outcome)
    label = Text(printable(check.name), style=style)
    said = _whole_message(check)
    if check.outcome is CheckOutcome.PASSED:
        return _Fact(label=label, text=Text(said))
    return _Fact(label=label, text=Text().append(check.outcome, style=style).append(f"  {said}"))


def _whole_message(check: CheckRecord) -> str:
    lines = printable(check.message.strip()).splitlines() or [what_it_says(check)]
    if len(lines) > _MESSAGE_LINES:
        lines = [*lines[:_MESSAGE_LINES], f"… {len(lines) - _MESSAGE_LINES} more lines in the log"]
    return "\n".join(lines)
