"""`targets:` and `python:`: what the tests of a suite look at, and who says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_helpers import GOOD, load, only_error

from harness.errors import UsageError
from harness.suites import Job, ProfileName, Target, expand, parse_target

TESTS = """\
summary: plain tests
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}}
tests: [test_x.py]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    return tmp_path


def job_of(folder: Path, text: str, target: Target | None = None) -> Job:
    (job,) = expand(load(folder, text), ProfileName.CPU, target=target)
    return job


@pytest.mark.parametrize(
    ("more", "targets"),
    [
        ("", ["reference"]),
        ("targets: [reference]", ["reference"]),
        ("targets: [sglang, reference]", ["sglang", "reference"]),
        ("python: sglang", ["sglang"]),
        ("python: sglang\ntargets: [sglang]", ["sglang"]),
        ("python: other", ["reference"]),
    ],
)
def test_the_first_target_is_the_default(folder: Path, more: str, targets: list[str]) -> None:
    suite = load(folder, TESTS + more + "\n")
    job = job_of(folder, TESTS + more + "\n")
    assert [*suite.targets] == [*job.targets] == targets
    assert job.target == targets[0]


def test_what_the_user_asks_for_counts_also_where_the_suite_has_it_not(folder: Path) -> None:
    job = job_of(folder, TESTS, Target.SGLANG)
    assert (job.target, job.targets) == (Target.SGLANG, (Target.REFERENCE,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TESTS + "targets: [refrence]", "did you mean 'reference'"),
        (TESTS + "targets: []", "1 item or more"),
        (TESTS + "targets: [sglang, sglang]", "names a target twice"),
        (TESTS + "targets: [reference, sglang]\npython: sglang", "every job of python: sglang runs in that"),
        (GOOD + "targets: [reference, sglang]", "stands beside checks"),
        (TESTS + "matrix: {t: [sglang]}\ntargets: ['${t}']", "targets"),
    ],
)
def test_contradictions_are_told_at_their_place(folder: Path, text: str, says: str) -> None:
    if "matrix" in text:
        with pytest.raises(UsageError, match=says):
            load(folder, text + "\n")
        return
    error = only_error(folder, text + "\n")
    assert error.field.startswith("targets")
    assert says in str(error)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("reference", (Target.REFERENCE, None)),
        ("sglang", (Target.SGLANG, None)),
        ("sglang@0.5.18", (Target.SGLANG, "0.5.18")),
        ("sglang@v0.5.18", (Target.SGLANG, "0.5.18")),
        ("sglang@version", (Target.SGLANG, "version")),
    ],
)
def test_a_target_on_a_command_line(given: str, parsed: tuple[Target, str | None]) -> None:
    assert parse_target(given) == parsed


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("slang", "unknown target 'slang'; did you mean 'sglang'"),
        ("vllm", "unknown target 'vllm'; allowed: reference, sglang"),
        ("", "unknown target ''; allowed"),
        ("sglang@", "the version is missing"),
        ("reference@1", "has no versions"),
    ],
)
def test_a_wrong_target_on_a_command_line(given: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_target(given)
