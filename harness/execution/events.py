"""Reading what a job streams: `events.jsonl`, written line by line by pytest-reportlog while the job runs, and
`questions.jsonl`, written batch by batch by the checks that ask scored questions.

`EventTail` hands out the complete lines that are new since the last look; a line that the job is still
writing, or never finished because it was killed, stays behind. `read_event` turns one line into findings,
`read_questions` many into question records.
What harness's own pytest plugin says travels in the user property `harness_check` of a report:
{"name", "outcome", "message", "figures", "seconds"}; the figure `deadline` of an errored check names the
deadline inside the job that passed.

A report without `harness_check` is a plain pytest test and becomes a check named like the test. A subtest (of
`unittest` or of the fixture `subtests`) is a check too, named after its test and its parameters; these are also
its figure `subtest`.
Failure rule: a line that cannot be understood is an `error` check, so it can never pass unseen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.verdict import (
    RED_CHECKS,
    SUBTEST_FIGURE,
    AskedQuestion,
    CheckOutcome,
    CheckRecord,
    decode_question,
)

# A traceback's message can hold a whole tensor; the log keeps all of it.
MESSAGE_LIMIT = 4000

# pytest's own and pytest-subtests' name for it, and the one that the class bears.
SUBTEST_REPORTS = frozenset({"SubTestReport", "SubtestReport"})

# Parameters of a subtest can be whole configurations; a name must fit a line.
POINT_LIMIT = 160

# What a line that is not as it should be can raise.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)

# What pytest calls the outcome of a phase, for tests that say nothing themselves.
CALL_OUTCOMES = {
    "passed": CheckOutcome.PASSED,
    "failed": CheckOutcome.FAILED,
    "skipped": CheckOutcome.SKIPPED,
}


class EventTail:
    """The file so far read; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[bytes]:
        """The complete lines since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(complete) + len(newline)
        return complete.split(b"\n") if newline else []

    def read(self) -> list[CheckRecord]:
        """The checks of the complete lines since the last call."""
        return [check for line in self.new_lines() for check in read_event(line)]


def read_event(line: bytes) -> list[CheckRecord]:
    """The checks of one line, in order."""
    try:
        event = _parsed(line)
        kind = event.get("$report_type")
        if kind == "TestReport":
            return _test_report(event)
        if kind in SUBTEST_REPORTS:
            return [_subtest(event)]
        return _collect_report(event) if kind == "CollectReport" else []
    except UNREADABLE as error:
        return [_unreadable("report", line, error)]


def read_questions(lines: Iterable[bytes]) -> tuple[list[AskedQuestion], list[CheckRecord]]:
    """The questions of these lines, and an `error` check for each line that holds none."""
    asked: list[AskedQuestion] = []
    unreadable: list[CheckRecord] = []
    for line in lines:
        try:
            asked.append(decode_question(line))
        except UNREADABLE as error:
            unreadable.append(_unreadable("question record", line, error))
    return asked, unreadable


def _unreadable(what: str, line: bytes, error: BaseException) -> CheckRecord:
    text = line[:200].decode(errors="replace")
    message = f"a {what} of the job cannot be read ({type(error).__name__}: {error}): {text}"
    return CheckRecord(name="events", outcome=CheckOutcome.ERROR, message=message)


def passed_deadline(checks: Iterable[CheckRecord]) -> str | None:
    """The deadline inside the job that passed first, by what the checks say."""
    scopes = (check.figures.get("deadline") for check in checks if check.outcome is CheckOutcome.ERROR)
    return next((scope for scope in scopes if isinstance(scope, str)), None)


def _test_report(event: Mapping[str, Any]) -> list[CheckRecord]:
    """What the check says itself, and a record for a phase that went wrong beyond that.

    Reports of later phases repeat the properties, so those of the teardown are not read again.
    """
    said = [] if event["when"] == "teardown" else event.get("user_properties", ())
    test = _tail(event["nodeid"])
    checks = [_said_check(value, test=test) for key, value in said if key == "harness_check"]
    return checks + _unsaid(event, checks)


def _parsed(line: bytes) -> Any:
    """The event as text that can be stored and shown: bytes that were no UTF-8 travel as half surrogate pairs
    (`\\udcff`), which nothing can encode, and become `?`."""
    event = json.loads(line)
    if b"\\ud" in line.lower():
        event = json.loads(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))
    return event


def _subtest(event: Mapping[str, Any]) -> CheckRecord:
    """One subtest. What its test does beyond it has a report of its own."""
    context = event["_subtest.context"]
    given = {str(key): str(value) for key, value in context["kwargs"].items()}
    words = [
        *([context["msg"]] if context["msg"] else []),
        *(f"{key}={value}" for key, value in given.items()),
    ]
    point = ", ".join(words)
    if len(point) > POINT_LIMIT:
        point = point[: POINT_LIMIT - 1] + "…"
    return CheckRecord(
        name=f"{_tail(event['nodeid'])} ({point})",
        outcome=_outcome("call", event["outcome"], expected_failure="wasxfail" in event),
        message=_message(event),
        figures={SUBTEST_FIGURE: dict(given)},
        seconds=_seconds(event.get("duration", 0.0)),
    )


def _said_check(said: Mapping[str, Any], *, test: str) -> CheckRecord:
    return CheckRecord(
        name=_text(said.get("name") or test),
        outcome=CheckOutcome(said["outcome"]),
        message=_text(said.get("message") or ""),
        figures=dict(said.get("figures") or {}),
        seconds=_seconds(said.get("seconds", 0.0)),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{value!r} is no number of seconds")
    return seconds


def _unsaid(event: Mapping[str, Any], said: Sequence[CheckRecord]) -> list[CheckRecord]:
    """The record of a phase that no `harness_check` accounts for."""
    when, outcome = event["when"], event["outcome"]
    explained = bool(said) if outcome != "failed" else any(check.outcome in RED_CHECKS for check in said)
    if explained or (outcome == "passed" and when != "call"):
        return []
    return [
        CheckRecord(
            name=_tail(event["nodeid"]),
            outcome=_outcome(when, outcome, expected_failure="wasxfail" in event),
            message=_message(event),
            seconds=_seconds(event.get("duration", 0.0)),
        )
    ]


def _outcome(when: str, outcome: str, *, expected_failure: bool) -> CheckOutcome:
    if outcome == "skipped" and expected_failure:
        return CheckOutcome.PASSED
    if outcome == "failed" and when != "call":
        return CheckOutcome.ERROR
    return CALL_OUTCOMES[outcome]


def _collect_report(event: Mapping[str, Any]) -> list[CheckRecord]:
    """A file that pytest could not collect, or that skipped itself; without this record it would only be
    missing."""
    if event["outcome"] == "passed":
        return []
    outcome = CheckOutcome.SKIPPED if event["outcome"] == "skipped" else CheckOutcome.ERROR
    name = f"collect {Path(event['nodeid']).name}"
    return [CheckRecord(name=name, outcome=outcome, message=_message(event))]


def _tail(nodeid: str) -> str:
    """`test_x.py::TestA::test_b[1]` → `TestA::test_b[1]`; an item of a suite file is named by its check."""
    file, _, inside = nodeid.partition("::")
    if file.endswith((".yaml", ".yml")):
        return nodeid.rpartition("::")[2]
    return inside or nodeid


def _message(event: Mapping[str, Any]) -> str:
    """The sentence of a failure or skip, out of the three shapes that reportlog gives it."""
    found = event.get("longrepr")
    if isinstance(found, Mapping):
        crash = found.get("reprcrash") or {}
        found = crash.get("message") or found.get("longrepr") or ""
    elif isinstance(found, list):
        found = found[-1]
    return str(found or "").strip()[:MESSAGE_LIMIT]
