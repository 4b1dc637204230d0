"""Points on the command line: which jobs `suite[dcp=4]`, `suite@cpu[dcp=4]` and a file's own name mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_helpers import write

from harness.errors import UsageError
from harness.suites import (
    Catalogue,
    Job,
    ProfileName,
    expand,
    load_catalogue,
    named_by_profile,
    read_source_tests,
    select,
    select_jobs,
    source_jobs,
)

POINTS = """\
summary: points
matrix: {dcp: [2, 4], page: ["1", "1,dcp=2"]}
profiles:
  cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}
  gpu: {needs: {gpu: b200, count: 1}, estimate: 1s, timeout: 1m}
tests: [test_x.py]
env: {D: "d${dcp}", P: "p${page}"}
"""
UPSTREAM = """\
summary: stands for one
upstream: test/unit/test_a.py
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}}
tests: [test_x.py]
"""
OWN = """\
summary: the engine's own
python: sglang
profiles: {cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}}
source_tests: {files: [test/unit/test_*.py]}
"""


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    root = tmp_path_factory.mktemp("suites")
    (root / "dcp").mkdir()
    (root / "dcp" / "test_x.py").touch()
    for name, text in {"dcp/points": POINTS, "dcp/stands": UPSTREAM, "dcp/own": OWN}.items():
        write(root, text, f"{name}.yaml")
    return load_catalogue(root)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    (root / "test" / "unit").mkdir(parents=True)
    for name in ("test_a.py", "test_b.py"):
        (root / "test" / "unit" / name).write_text("register_cpu_ci(1)\n")
    return root


def chosen(catalogue: Catalogue, *patterns: str, source: Path | None = None) -> list[str]:
    """The ids that a command line means, as the commands find them."""
    suites = select(catalogue, patterns, with_source=source is not None)
    jobs = [job for suite in suites for name in ProfileName for job in expand(suite, name)]
    return [job.id for job in select_jobs(with_files(jobs, source), patterns, suites=suites)]


def with_files(jobs: list[Job], source: Path | None) -> list[Job]:
    return [
        made
        for job in jobs
        for made in (
            [job]
            if job.source_tests is None or source is None
            else source_jobs(job, read_source_tests(job.source_tests, root=source))
        )
    ]


def test_a_point_is_some_or_all_of_its_values_as_ids_write_them(catalogue: Catalogue) -> None:
    both = [f"dcp/points@{profile}" for profile in ("cpu", "gpu")]
    for pattern in ("dcp/points[dcp=4]", "dcp/p*[dcp=4]", "dcp/points[dcp=[4]]"):
        assert chosen(catalogue, pattern) == [
            f"{job}[dcp=4,page={page}]" for job in both for page in ("1", "1,dcp=2")
        ]
    assert chosen(catalogue, "dcp/points[page=1]") == [
        f"{job}[dcp={n},page=1]" for job in both for n in (2, 4)
    ]
    assert chosen(catalogue, "dcp/points[page=1,dcp=4]") == [f"{job}[dcp=4,page=1]" for job in both]
    assert chosen(catalogue, "dcp/points@gpu[dcp=2,page=1]") == ["dcp/points@gpu[dcp=2,page=1]"]
    assert len(chosen(catalogue, "dcp/points@gpu")) == 4
    assert len(chosen(catalogue, "dcp/points[page=*]")) == 8


def test_every_id_means_its_own_job(catalogue: Catalogue, source: Path) -> None:
    """Also where a value holds a comma, or what a glob would read."""
    everything = chosen(catalogue, "*", source=source)
    assert len(everything) == len(set(everything)) == 8 + 1 + 2
    for job_id in everything:
        assert chosen(catalogue, job_id, source=source) == [job_id]


IDS = ["dcp/points@cpu[dcp=2,page=1]", "dcp/points[dcp=4]", "dcp/stands", "dcp/own[file=*b.py]"]


@given(st.lists(st.sampled_from(IDS), min_size=1))
def test_patterns_add_up_and_no_order_changes_the_answer(
    catalogue: Catalogue, source: Path, patterns: list[str]
) -> None:
    found = chosen(catalogue, *patterns, source=source)
    assert set(found) == {job for each in patterns for job in chosen(catalogue, each, source=source)}
    assert found == chosen(catalogue, *patterns[::-1], source=source)
    assert len(found) == len(set(found))


def test_a_file_of_a_source_is_called_by_its_own_name(catalogue: Catalogue, source: Path) -> None:
    own = "dcp/own@cpu[file=test/unit/test_{}.py]"
    assert chosen(catalogue, "test/unit/test_b.py", source=source) == [own.format("b")]
    assert chosen(catalogue, "dcp/own[file=*/test_b.py]", source=source) == [own.format("b")]
    assert chosen(catalogue, "test/unit/test_a.py", source=source) == [own.format("a"), "dcp/stands@cpu"]
    # without a source there are no files: a suite that stands for one is meant, and the others say what they need
    assert chosen(catalogue, "test/unit/test_a.py") == ["dcp/stands@cpu"]
    assert chosen(catalogue, "dcp/own[file=test/unit/test_b.py]") == ["dcp/own@cpu"]
    with pytest.raises(
        UsageError, match=r"'test/unit/test_b\.py' is a file that dcp/own takes .*--source PATH"
    ):
        chosen(catalogue, "test/unit/test_b.py")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("dcp/points[dcp=3]", r"'dcp/points\[dcp=3\]'; near names: dcp/points\[dcp="),
        ("dcp/points@cpu[dcp=3]", r"near names: dcp/points@cpu\[dcp="),
        ("dcp/points[pgae=1]", r"near names: dcp/points\["),
        ("dcp/stands[dcp=4]", "near names: dcp/stands$"),
        ("dcp/stands@gpu", "near names: dcp/stands@cpu$"),
        ("test/unit/test_c.py", r"near names: test/unit/test_[ab]\.py, test/unit/test_[ab]\.py$"),
        ("dcp/own[file=test/unit/test_c.py]", r"near names: dcp/own\[file=test/unit/test_[ab]\.py\]"),
    ],
)
def test_a_point_that_is_not_there_is_told_with_near_ones_each_once(
    catalogue: Catalogue, source: Path, pattern: str, says: str
) -> None:
    with pytest.raises(UsageError, match=f"no selected job matches .*{says}") as raised:
        chosen(catalogue, "dcp/points", pattern, source=source)
    near = str(raised.value).partition("near names: ")[2].split(", ")
    assert len(near) == len(set(near))


def test_an_id_asks_for_its_profile_by_name(catalogue: Catalogue) -> None:
    suites = select(catalogue, ["*"])
    jobs = [job for suite in suites for name in ProfileName for job in expand(suite, name)]
    asked = ["dcp/points@gpu[dcp=2,page=1]", "dcp/points[dcp=4]", "dcp/stands"]
    assert named_by_profile(jobs, asked) == {"dcp/points@gpu[dcp=2,page=1]"}
