"""How results are worded and coloured on a terminal: shared by the live views and the summary.

Text that comes from an engine or a test is never trusted: control characters are shown as escapes, so that
no message can move the cursor, colour the screen or hide another line.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.suites import Target
from harness.verdict import (
    JSON,
    OPEN_CHECKS,
    RED_CHECKS,
    AttemptOutcome,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    Verdict,
    findings,
)

# C0 without tab and newline, DEL, C1, and the marks that reorder text (bidi controls).
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# A figure longer than this is a listing, not a key figure.
_FIGURE_CHARS = 40

# Options of `harness run` that change what a job does: a command to reproduce must repeat them.
_STICKY_OPTIONS = (
    "--fault",
    "--engine-arg",
    "--target",
    "--engine-ref",
    "--source",
    "--catalogue",
    "--pools",
    "--repeat",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One state as a user sees it: a glyph of one cell, a word, a rich style."""

    glyph: str
    word: str
    style: str


# In the order of the summary's first line.
VERDICT_LOOKS: Mapping[Verdict, Look] = {
    Verdict.PASSED: Look(glyph="✔", word="passed", style="green"),
    Verdict.FAILED: Look(glyph="✘", word="failed", style="bold red"),
    Verdict.TIMEOUT: Look(glyph="✘", word="timed out", style="bold red"),
    Verdict.FLAKY: Look(glyph="≈", word="flaky", style="bold yellow"),
    Verdict.INCONCLUSIVE: Look(glyph="?", word="inconclusive", style="yellow"),
    Verdict.INFRA: Look(glyph="!", word="infra", style="yellow"),
    Verdict.NOT_RUN: Look(glyph="–", word="not run", style="blue"),
    Verdict.SKIPPED: Look(glyph="–", word="skipped", style="dim"),
}
RUNNING = Look(glyph="●", word="running", style="cyan")
WAITING = Look(glyph="·", word="waiting", style="dim")

_CHECK_STYLES: Mapping[CheckOutcome, str] = {
    CheckOutcome.PASSED: "green",
    CheckOutcome.FAILED: "bold red",
    CheckOutcome.ERROR: "bold red",
}
_ATTEMPT_STYLES: Mapping[AttemptOutcome, str] = {
    AttemptOutcome.PASSED: "green",
    AttemptOutcome.FAILED: "bold red",
    AttemptOutcome.TIMEOUT: "bold red",
}


def check_style(outcome: CheckOutcome) -> str:
    """The rich style of a check's outcome; yellow says: no finding either way."""
    return _CHECK_STYLES.get(outcome, "yellow")


def attempt_style(outcome: AttemptOutcome | None) -> str:
    """The rich style of an attempt's outcome."""
    return "cyan" if outcome is None else _ATTEMPT_STYLES.get(outcome, "yellow")


def look(job: JobRecord) -> Look:
    """How the job's verdict looks; a job without one is running or waiting."""
    if job.verdict is not None:
        return VERDICT_LOOKS[job.verdict]
    return RUNNING if job.attempts else WAITING


def printable(text: str) -> str:
    """`text` with every control character but tab and newline shown as an escape."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def first_line(text: str) -> str:
    """The summary line of a message, printable."""
    return printable(text.strip().partition("\n")[0])


def duration(seconds: float) -> str:
    """`0.3 s`, `42 s`, `1m 05s`, `2h 05m`: two figures are enough to read."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def devices(names: Sequence[str]) -> str:
    """`cpu:0-3 gpu:7`: neighbours of one kind joined, so that eight devices fit a column."""
    joined: list[tuple[str, int, int]] = []
    others: list[str] = []
    for name in names:
        kind, colon, number = name.rpartition(":")
        if not colon or not number.isdecimal():
            others.append(printable(name))
        elif joined and joined[-1][0] == kind and joined[-1][2] + 1 == int(number):
            joined[-1] = (kind, joined[-1][1], int(number))
        else:
            joined.append((kind, int(number), int(number)))
    spans = [f"{kind}:{low}" if low == high else f"{kind}:{low}-{high}" for kind, low, high in joined]
    return " ".join([*spans, *others])


def target_label(engine_sha: str | None) -> str:
    """`sglang 0.5.18` where a job's tests looked at a package; empty where an engine was launched, which is known
    by the commit of its code."""
    name = (engine_sha or "").partition(" ")[0]
    return printable(engine_sha or "") if name in list(Target) else ""


def count_tests(checks: Iterable[CheckRecord]) -> str:
    """`17 passed, 18 subtests, 1 failed`: tests and subtests of pytest files, which are too many to be listed."""
    counts: Counter[str] = Counter()
    for check in checks:
        passed = check.outcome is CheckOutcome.PASSED
        counts["subtests" if check.is_subtest and passed else check.outcome.value] += 1
    if counts["subtests"] == 1:
        counts["subtest"] = counts.pop("subtests")
    order = ["passed", "subtests", "subtest", *(outcome.value for outcome in CheckOutcome)]
    return ", ".join(f"{counts[word]:,} {word}" for word in dict.fromkeys(order) if counts[word])


def told_by(checks: Sequence[CheckRecord], reason: str) -> bool:
    """Whether `reason` only quotes these checks, so that whoever shows them need not show it."""
    told = "; ".join(findings(check for check in checks if check.outcome in RED_CHECKS | OPEN_CHECKS))
    return bool(told) and reason.endswith(told)


def what_it_says(check: CheckRecord) -> str:
    """One line: the check's own words, else its key figures."""
    return first_line(check.message) or key_figures(check.figures)


def key_figures(figures: Mapping[str, JSON]) -> str:
    """`max_gap 3.1e-06, prompts 8`: the figures that are short enough to be read at a glance."""
    shown = ((name, _figure(value)) for name, value in figures.items())
    return ", ".join(f"{name} {value}" for name, value in shown if value and len(value) <= _FIGURE_CHARS)


def _figure(value: JSON) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None or isinstance(value, list | dict):
        return ""
    return printable(str(value))


def reproduce(job: JobRecord, *, argv: Sequence[str] = ()) -> str:
    """The command that runs this job alone again, with the options of the run's `argv` that change what it does."""
    point = job.id.removeprefix(f"{job.suite}@{job.profile}")
    command = ["harness", "run", job.suite + point, "--profile", job.profile]
    for name, value in _options(argv, _STICKY_OPTIONS):
        command += [name, value]
    return shlex.join(command)


def show_again(run: str, job: JobRecord, *, argv: Sequence[str] = ()) -> str:
    """The command that shows all checks of this job, from where the run of that `argv` left them."""
    command = ["harness", "show", run, job.id]
    for name, value in _options(argv, ("--reports",)):
        command += [name, value]
    return shlex.join(command)


def option_values(argv: Sequence[str], name: str) -> list[str]:
    """Every value of that option of the run, printable."""
    return [printable(value) for _, value in _options(argv, (name,))]


def _options(argv: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """`--fault x` and `--fault=x` alike."""
    arguments = iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in names:
            yield name, value if equals else next(arguments, "")
