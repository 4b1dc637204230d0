"""JUnit XML in the dialect of Jenkins xunit (`junit-10.xsd`), which every CI system reads.

A job is a test suite, a check a test case. What no check can tell (a killed process, a deadline, a machine at
fault, a job that did not run) is told by a test case named `job`. Failures are findings of an assertion;
errors are everything else that makes the exit status non-zero; `skipped` carries the reason. Earlier attempts
are kept as `rerun*` (the case ended red) or `flaky*` (it ended green). Rule: a suite whose job counts
against the run never renders green. Properties stand on suites only: on cases this dialect forbids them.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.report.files import write_text
from harness.report.wording import key_figures
from harness.verdict import (
    OPEN_CHECKS,
    RED_CHECKS,
    AttemptOutcome,
    CheckOutcome,
    CheckRecord,
    JobRecord,
    RunRecord,
    Verdict,
)

# What XML 1.0 cannot hold, escaped or not (section 2.2, production 2).
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_JOB_CASE = "job"

# A check of an earlier attempt that the last one never came to: neither green nor a finding of its own.
_NOT_AGAIN = ("skipped", "not_run", "did not run in the last attempt", "")


@dataclass(slots=True, kw_only=True)
class _Case:
    """A test case in the making. `result` is (element, type, message, text) or None when it passed."""

    name: str
    seconds: float = 0.0
    result: tuple[str, str, str, str] | None = None
    earlier: list[tuple[str, str, str, str]] = field(default_factory=list)
    output: str = ""


def render_junit(run: RunRecord) -> str:
    """The run as one document; `tests`, `failures` and `errors` are counted from its cases."""
    root = ET.Element("testsuites", name=_xml(f"harness {run.run}"))
    for job in run.jobs:
        root.append(_suite(run, job))
    totals = Counter(
        {name: sum(int(suite.attrib[name]) for suite in root) for name in ("tests", "failures", "errors")}
    )
    root.attrib |= {name: str(count) for name, count in totals.items()}
    root.set("time", _time(sum(job.seconds for job in run.jobs)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def write_junit(run: RunRecord, path: Path) -> None:
    """Writes the document to `path`. Raises `ReportError` when it cannot be written."""
    write_text(path, render_junit(run))


def _suite(run: RunRecord, job: JobRecord) -> ET.Element:
    cases = _cases(job)
    elements = Counter(case.result[0] for case in cases if case.result)
    suite = ET.Element(
        "testsuite",
        name=_xml(job.id),
        tests=str(len(cases)),
        failures=str(elements["failure"]),
        errors=str(elements["error"]),
        skipped=str(elements["skipped"]),
        time=_time(job.seconds),
        timestamp=run.started_at.isoformat(timespec="seconds"),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(run, job):
        ET.SubElement(properties, "property", name=name, value=_xml(value))
    for case in cases:
        suite.append(_case_element(case, classname=job.id))
    return suite


def _properties(run: RunRecord, job: JobRecord) -> Iterator[tuple[str, str]]:
    yield "run", run.run
    yield "harness_sha", run.harness_sha
    yield "engine_sha", job.engine_sha or ""
    yield "suite", job.suite
    yield "profile", job.profile
    yield "verdict", job.verdict or ""
    yield "reason", job.reason
    yield "attempts", str(len(job.attempts))
    yield "gpu_minutes", f"{job.gpu_minutes:.3f}"
    for key, value in job.matrix.items():
        yield f"matrix.{key}", str(value)
    if job.attempts:
        yield "node", job.attempts[-1].node
        yield "devices", " ".join(job.attempts[-1].devices)


def _cases(job: JobRecord) -> list[_Case]:
    """The checks of the last attempt, with what earlier attempts said of each, and `job` where needed."""
    cases = {name: _check_case(name, check) for name, check in _numbered(job.last_checks)}
    job_case = _Case(name=_JOB_CASE)
    for attempt in job.attempts[:-1]:
        red = [(name, check) for name, check in _numbered(attempt.checks) if check.outcome in RED_CHECKS]
        for name, check in red:
            cases.setdefault(name, _Case(name=name, result=_NOT_AGAIN)).earlier.append(_told(check))
        if not red and attempt.outcome is not None and attempt.outcome is not AttemptOutcome.PASSED:
            reason = f"attempt {attempt.n}: {attempt.reason}"
            job_case.earlier.append(("error", attempt.outcome.value, reason, reason))
    job_case.result = _job_result(job)
    if job_case.result or job_case.earlier or not cases:
        cases[_JOB_CASE] = job_case
    return list(cases.values())


def _numbered(checks: tuple[CheckRecord, ...]) -> Iterator[tuple[str, CheckRecord]]:
    """A name that comes again gets a number, so that cases of one suite stay apart: `parity`, `parity#2`."""
    seen: Counter[str] = Counter()
    for check in checks:
        seen[check.name] += 1
        yield (check.name if seen[check.name] == 1 else f"{check.name}#{seen[check.name]}"), check


def _check_case(name: str, check: CheckRecord) -> _Case:
    red = check.outcome is not CheckOutcome.PASSED
    said = "\n".join(filter(None, [check.message, key_figures(check.figures)]))
    return _Case(name=name, seconds=check.seconds, result=_told(check) if red else None, output=said)


def _told(check: CheckRecord) -> tuple[str, str, str, str]:
    if check.outcome is CheckOutcome.SKIPPED:
        element = "skipped"
    else:
        element = "failure" if check.outcome is CheckOutcome.FAILED else "error"
    return element, check.outcome.value, check.message.partition("\n")[0], check.message


def _job_result(job: JobRecord) -> tuple[str, str, str, str] | None:
    """What the job's verdict adds to its checks; None where they already tell it, or nothing is wrong."""
    if job.verdict in (Verdict.NOT_RUN, Verdict.SKIPPED):
        return "skipped", job.verdict.value, job.reason, job.reason
    if job.verdict is None or job.verdict is Verdict.PASSED:
        return None
    told = {Verdict.FAILED: RED_CHECKS, Verdict.INCONCLUSIVE: OPEN_CHECKS}.get(job.verdict, frozenset())
    if any(check.outcome in told for check in job.last_checks):
        return None
    element = "failure" if job.verdict is Verdict.FLAKY else "error"
    return element, job.verdict.value, job.reason, job.reason


def _case_element(case: _Case, *, classname: str) -> ET.Element:
    element = ET.Element("testcase", name=_xml(case.name), classname=_xml(classname))
    element.set("time", _time(case.seconds))
    if case.result:
        tag, kind, message, text = case.result
        ET.SubElement(element, tag, type=kind, message=_xml(message)).text = _xml(text)
    prefix = "rerun" if case.result and case.result[0] != "skipped" else "flaky"
    for tag, kind, message, text in case.earlier:
        name = prefix + ("Failure" if tag == "failure" else "Error")
        again = ET.SubElement(element, name, type=kind, message=_xml(message))
        ET.SubElement(again, "stackTrace").text = _xml(text)
    if case.output:
        ET.SubElement(element, "system-out").text = _xml(case.output)
    return element


def _xml(text: str) -> str:
    """`text` with what XML cannot hold shown as `#x1B`, as pytest does."""
    return _NOT_XML.sub(lambda found: f"#x{ord(found.group()):02X}", text)


def _time(seconds: float) -> str:
    return f"{seconds if math.isfinite(seconds) else 0:.3f}"
