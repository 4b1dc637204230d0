"""`source_tests:`: which of an engine's own test files become jobs, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite_helpers import errors_of, load, only_error

from harness.suites import Job, ProfileName, expand, idle_exclusions, read_source_tests, source_jobs
from harness.suites.source_tests import registrations, why_not_registered

SUITE = """\
summary: the engine's own tests
python: sglang
profiles: {cpu: {needs: {cpu: 1}, estimate: 20s, timeout: 5m}}
source_tests:
  files: [test/a/test_*.py, test/b/test_gone.py]
  exclude:
    - {file: test/a/test_slow.py, reason: takes an hour}
    - {file: test/a/test_cpu.py, test: "TestA::test_net", reason: asks a hub}
"""
CPU = 'register_cpu_ci(est_time=7, suite="x")\n'


def jobs_from(folder: Path, text: str, files: dict[str, str]) -> dict[str, Job]:
    """The jobs of a suite on a source with these files, by path of the file."""
    for name, content in files.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (job,) = expand(load(folder / "suites", text), ProfileName.CPU)
    assert job.source_tests is not None
    listing = read_source_tests(job.source_tests, root=folder / "source")
    made = source_jobs(job, listing)
    assert all(each.source_file is not None for each in made)
    return {each.source_file.path: each for each in made if each.source_file is not None}


def test_every_file_is_a_job_or_says_why_not(tmp_path: Path) -> None:
    jobs = jobs_from(
        tmp_path,
        SUITE,
        {
            "test/a/test_cpu.py": CPU,
            "test/a/test_gpu.py": "register_cuda_ci(est_time=1)\nregister_amd_ci(2)\n",
            "test/a/test_off.py": 'register_cpu_ci(1, "x", False, "flaky since May")\n',
            "test/a/test_none.py": "def test(): pass\n",
            "test/a/test_torn.py": "def test(:\n",
            "test/a/test_slow.py": CPU,
            "test/a/helper.py": CPU,
            "test/a/test_data.txt": CPU,
        },
    )
    told = {path: job.left_out for path, job in jobs.items()}
    assert told == {
        "test/a/test_cpu.py": None,
        "test/a/test_gpu.py": "registered for cuda and amd only",
        "test/a/test_off.py": "disabled by upstream: flaky since May",
        "test/a/test_none.py": "registered for no machine",
        "test/a/test_torn.py": None,  # pytest itself tells what is wrong with it, in red
        "test/a/test_slow.py": "takes an hour",
        "test/b/test_gone.py": None,
    }
    gone = jobs["test/b/test_gone.py"].source_file
    assert gone is not None
    assert gone.missing == "this source has no such file"
    first = jobs["test/a/test_cpu.py"]
    assert first.id == "x@cpu[file=test/a/test_cpu.py]"
    assert first.matrix == {"file": "test/a/test_cpu.py"}
    assert first.estimate_s == 27.0  # the suite's own and what the file says
    assert first.source_file is not None
    assert first.source_file.excused == {"TestA::test_net": "asks a hub"}
    assert first.source_file.missing is None


def test_a_changed_file_is_another_job(tmp_path: Path) -> None:
    one = jobs_from(tmp_path, SUITE, {"test/a/test_cpu.py": CPU})["test/a/test_cpu.py"]
    two = jobs_from(tmp_path, SUITE, {"test/a/test_cpu.py": CPU + "\n"})["test/a/test_cpu.py"]
    assert one.id == two.id
    assert one != two


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("class TestA:\n    def test_net(self): pass\n", ["test/a/test_slow.py"]),
        ("class TestA:\n    async def test_net(self): pass\n", ["test/a/test_slow.py"]),
        ("class TestA:\n    def test_nets(self): pass\n", ["test/a/test_slow.py", "TestA::test_net"]),
        ("class TestB:\n    def test_net(self): pass\n", ["test/a/test_slow.py", "TestA::test_net"]),
        ("# class TestA: def test_net\n", ["test/a/test_slow.py", "TestA::test_net"]),
        ("def test(:\n", ["test/a/test_slow.py"]),
    ],
)
def test_exclusions_that_leave_nothing_out_are_found(tmp_path: Path, text: str, idle: list[str]) -> None:
    jobs = jobs_from(tmp_path, SUITE, {"test/a/test_cpu.py": CPU + text})
    tests = jobs["test/a/test_cpu.py"].source_tests
    assert tests is not None
    found = idle_exclusions(tests, read_source_tests(tests, root=tmp_path / "source"))
    assert [entry.test or entry.file for entry in found] == idle


def test_nothing_is_imported(tmp_path: Path) -> None:
    bomb = CPU + f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    jobs_from(tmp_path, SUITE, {"test/a/test_cpu.py": bomb})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    register_cpu_ci(est_time=1)\n",
        "if False:\n    register_cpu_ci(est_time=1)\n",
        "x = register_cpu_ci(est_time=1)\n",
        "# register_cpu_ci(est_time=1)\n",
        "'register_cpu_ci(est_time=1)'\n",
        "register_cpu_ci\n",
        "register_cpu(est_time=1)\n",
    ],
)
def test_what_only_looks_like_a_registration(text: str) -> None:
    assert registrations(text) == []


def test_registrations_through_a_module_and_with_odd_arguments() -> None:
    found = registrations("ci.register_cpu_ci(EST, **more)\nregister_cpu_ci(3, suite='s', nightly=True)\n")
    assert found is not None
    assert [(each.backend, each.seconds, each.disabled) for each in found] == [
        ("cpu", 0.0, None),
        ("cpu", 3.0, None),
    ]
    assert registrations("def x(:") is None
    assert registrations("\0") is None


BACKENDS = st.sampled_from(["cpu", "cuda", "amd", "npu"])


@given(calls=st.lists(st.tuples(BACKENDS, st.none() | st.sampled_from(["broken", ""]))), wanted=BACKENDS)
def test_a_file_runs_where_one_registration_of_its_kind_is_on(
    calls: list[tuple[str, str | None]], wanted: str
) -> None:
    lines = [
        f"register_{name}_ci(1, 's'" + ("" if off is None else f", disabled={off!r}") + ")"
        for name, off in calls
    ]
    found = registrations("\n".join(lines))
    assert found is not None
    runs = any(name == wanted and off is None for name, off in calls)
    assert (why_not_registered(found, backend=wanted) is None) == runs


PLAIN = SUITE.split("source_tests:")[0] + "source_tests: {files: [test/test_x.py]}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PLAIN.replace("python: sglang\n", ""), "are those of an engine"),
        (PLAIN.replace("[test/test_x.py]", "[]"), "1 item or more"),
        (PLAIN.replace("files: ", "registered: gpu, files: "), "allowed"),
        (PLAIN + "checks: [drained: {}]\n", "stands beside checks or tests"),
        *(
            (PLAIN.replace("test/test_x.py", path), "is no test file of a source")
            for path in ("/etc/x.py", "../x.py", "a/../../x.py", "a//x.py", "a/**/x.py", "a/x.txt", "x.py/")
        ),
    ],
)
def test_what_a_suite_of_source_tests_cannot_say(tmp_path: Path, text: str, says: str) -> None:
    assert any(says in str(error) for error in errors_of(tmp_path, text)), errors_of(tmp_path, text)


def test_it_launches_no_engine(tmp_path: Path) -> None:
    engine = "{kind: reference, model: builtin:random-gqa}"
    error = only_error(tmp_path, PLAIN.replace("timeout: 5m", f"timeout: 5m, engine: {engine}"))
    assert "launch what they need" in str(error)
