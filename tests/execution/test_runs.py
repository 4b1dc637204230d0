"""Whole runs of fake jobs: what becomes of each way a job can go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from run_bench import Bench, new_job

from harness.containment import Contained, Containment, choose_containment
from harness.containment.proc import descendants_of
from harness.errors import InfraError
from harness.execution import scratch
from harness.suites import Skip
from harness.verdict import JobRecord, RunRecord, Verdict


def only(record: RunRecord) -> JobRecord:
    (job,) = record.jobs
    return job


def verdicts(record: RunRecord) -> dict[str, str]:
    return {job.suite: str(job.verdict) for job in record.jobs}


def test_a_good_job_passes_and_everything_is_told_in_order(bench: Bench) -> None:
    record = bench.run({"good": "check('capacity', message='fits', figures={'rows': 64})"})
    job = only(record)
    assert (job.verdict, job.reason) == (Verdict.PASSED, "")
    (check,) = job.last_checks
    assert (check.name, check.message, check.figures, check.seconds) == (
        "capacity",
        "fits",
        {"rows": 64},
        0.5,
    )
    assert job.attempts[0].devices == ["cpu:0"]
    assert job.attempts[0].node == os.uname().nodename
    assert bench.view.told == [
        "run good@cpu",
        "start good@cpu 1 cpu:0",
        "check good@cpu capacity passed",
        "attempt good@cpu 1 passed",
        "job good@cpu passed",
        "close",
    ]


def test_results_are_seen_while_the_job_runs(bench: Bench) -> None:
    """The job goes on only after its first check has been shown."""
    bench.view.hooks["early"] = (bench.folder / "seen").touch
    code = "check('early'); await_file('seen'); check('late')"
    job = new_job("slow", checks=("early", "late"), timeout_s=60.0)
    assert only(bench.run({"slow": code}, job)).verdict is Verdict.PASSED


def test_the_job_gets_its_devices_scratch_folder_and_log(bench: Bench) -> None:
    code = """
scratch = Path(os.environ['TMPDIR'])
(scratch / 'left').write_text('x')
told = {'scratch': str(scratch), 'empty': sorted(p.name for p in scratch.iterdir()) == ['left'],
        'devices': os.environ['HARNESS_DEVICES'], 'gpus': os.environ['CUDA_VISIBLE_DEVICES'],
        'suite': os.environ['WORD']}
print('said aloud')
check('capacity', figures=told)
"""
    figures = only(bench.run({"a": code}, new_job("a", cpu=2, env={"WORD": "w"}))).last_checks[0].figures
    folder = figures.pop("scratch")
    assert isinstance(folder, str)
    assert not Path(folder).exists()
    assert figures == {"empty": True, "devices": "cpu:0,cpu:1", "gpus": "", "suite": "w"}
    assert bench.last_paths is not None
    assert bench.last_paths.log("a@cpu", 1).read_text() == "said aloud\n"
    assert (bench.reports / "latest").resolve() == bench.last_paths.run_dir.resolve()


def test_what_a_killed_job_streamed_is_kept(bench: Bench, mode: str) -> None:
    code = """check('capacity', message='before'); write('{"$report_type": "TestRep'); die(9)"""
    job = only(bench.run({"crash": code}, new_job("crash", checks=("capacity", "rows"))))
    assert job.verdict is Verdict.FAILED
    assert "killed by SIGKILL" in job.reason
    assert "never ran: rows" in job.reason
    assert [check.message for check in job.last_checks] == ["before"]


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_deadline_keeps_the_stacks_and_ends_the_tree(bench: Bench, mode: str, stubborn: bool) -> None:
    code = f"""
faulthandler.register(signal.SIGUSR1, all_threads=True)
if os.fork() != 0:
    check('capacity')
hang(stubborn={stubborn})
"""
    later = [0.0]
    bench.view.hooks["capacity"] = lambda: later.__setitem__(0, 1000.0)  # longer than the job may take
    clock = lambda: time.monotonic() + later[0]  # noqa: E731
    result = only(bench.run({"hangs": code}, clock=clock, grace_s=0.2))
    assert result.verdict is Verdict.TIMEOUT
    assert "deadline 'job' passed" in result.reason
    assert len(result.last_checks) == 1
    assert bench.last_paths is not None
    log = bench.last_paths.log("hangs@cpu", 1).read_text()
    assert log.count("most recent call first") == 2  # both processes
    assert descendants_of(os.getpid()) == []


def test_a_deadline_inside_the_job_is_the_one_that_is_named(bench: Bench) -> None:
    code = "check('capacity', 'error', message='late', figures={'deadline': 'launch'}); sys.exit(1)"
    result = only(bench.run({"a": code}))
    assert result.verdict is Verdict.TIMEOUT
    assert "deadline 'launch' passed" in result.reason


def test_jobs_run_side_by_side_when_they_fit(bench: Bench) -> None:
    """Each waits for the other, so they end only if they run at once."""
    code = "Path({mine!r}).touch(); await_file({other!r}); check('capacity')"
    codes = {"a": code.format(mine="a", other="b"), "b": code.format(mine="b", other="a")}
    jobs = [new_job("a", timeout_s=60.0), new_job("b", timeout_s=60.0)]
    assert verdicts(bench.run(codes, *jobs)) == {"a": "passed", "b": "passed"}


def test_jobs_that_do_not_fit_together_run_one_after_another(bench: Bench) -> None:
    code = "os.close(os.open('busy', os.O_CREAT | os.O_EXCL)); check('capacity'); os.unlink('busy')"
    names = ("a", "b", "c")
    record = bench.run(dict.fromkeys(names, code), *(new_job(name, cpu=2) for name in names))
    assert verdicts(record) == dict.fromkeys(names, "passed")


def test_an_interrupt_stops_what_runs_and_says_so_of_the_rest(bench: Bench, mode: str) -> None:
    bench.view.hooks["capacity"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    codes = {"runs": "check('capacity'); hang()", "waits": "check('capacity')"}
    handler = signal.getsignal(signal.SIGINT)
    record = bench.run(codes, new_job("runs", cpu=2, estimate_s=99.0), new_job("waits"))
    assert record.interrupted
    assert verdicts(record) == {"runs": "not_run", "waits": "not_run"}
    assert {job.reason for job in record.jobs} == {"the run was interrupted"}
    assert [len(job.attempts) for job in record.jobs] == [1, 0]
    assert len(record.jobs[0].last_checks) == 1
    assert descendants_of(os.getpid()) == []
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_interrupt_does_not_wait_for_the_grace(bench: Bench) -> None:
    """The job answers the first SIGTERM with a check; only a second signal can end it before the deadline."""
    bench.view.hooks = dict.fromkeys(("first", "second"), lambda: os.kill(os.getpid(), signal.SIGTERM))
    code = "signal.signal(15, lambda *_: check('second')); check('first'); signal.pause(); hang()"
    job = new_job("a", checks=("first", "second"), timeout_s=90.0)
    result = only(bench.run({"a": code}, job, grace_s=90.0))
    assert (result.verdict, result.reason) == (Verdict.NOT_RUN, "the run was interrupted")
    assert [check.name for check in result.last_checks] == ["first", "second"]


def test_a_red_check_is_not_hidden_by_an_interrupt_of_the_next_attempt(bench: Bench) -> None:
    bench.view.hooks["again"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    code = """
if Path('once').exists():
    check('again'); hang()
Path('once').touch()
check('capacity', 'failed', message='wrong'); sys.exit(1)
"""
    result = only(bench.run({"a": code}, repeat=3))
    assert result.verdict is Verdict.FAILED
    assert [str(attempt.outcome) for attempt in result.attempts] == ["failed", "interrupted"]


def test_repeat_finds_a_flake_and_keeps_every_attempt(bench: Bench) -> None:
    code = """
good = not Path('once').exists()
Path('once').touch()
check('capacity', 'passed' if good else 'failed', message='wrong'); sys.exit(not good)
"""
    result = only(bench.run({"a": code}, repeat=3))
    assert result.verdict is Verdict.FLAKY
    assert [str(attempt.outcome) for attempt in result.attempts] == ["passed", "failed", "failed"]
    assert [attempt.n for attempt in result.attempts] == [1, 2, 3]


def test_fail_fast_starts_nothing_new(bench: Bench) -> None:
    codes = {"bad": "check('capacity', 'failed'); sys.exit(1)", "rest": "check('capacity')"}
    jobs = [new_job("bad", cpu=2, estimate_s=99.0), new_job("rest", cpu=2)]
    record = bench.run(codes, *jobs, fail_fast=True, repeat=5)
    assert verdicts(record) == {"bad": "failed", "rest": "not_run"}
    assert record.jobs[1].reason == "stopped after bad@cpu: failed (--fail-fast)"
    assert len(record.jobs[0].attempts) == 1
    assert not record.interrupted


def test_skipped_and_impossible_jobs_are_set_aside_with_their_reason(bench: Bench) -> None:
    skip = Skip.model_validate({"reason": "kernel missing", "until": "2030-01-31"})
    jobs = [new_job("skipped", skip=skip), new_job("cannot"), new_job("runs")]
    record = bench.run(
        {"runs": "check('capacity')"}, *jobs, cannot=lambda job: "no gpu" if job.suite == "cannot" else None
    )
    assert {job.suite: (str(job.verdict), job.reason) for job in record.jobs} == {
        "skipped": ("skipped", "kernel missing (until 2030-01-31)"),
        "cannot": ("not_run", "no gpu"),
        "runs": ("passed", ""),
    }
    assert skip.until == date(2030, 1, 31)


class Unlucky:
    """A machine without room for the first `times` processes."""

    name = "unlucky"

    def __init__(self, times: int) -> None:
        self._left = times
        self._real: Containment = choose_containment()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: int,
        pass_fds: Sequence[int] = (),
    ) -> Contained:
        if self._left:
            self._left -= 1
            raise InfraError("spawn", "no memory")
        return self._real.spawn(argv, cwd=cwd, env=env, stdout=stdout, pass_fds=pass_fds)


@pytest.mark.parametrize(
    ("times", "verdict", "outcomes"),
    [(2, Verdict.PASSED, ["infra", "infra", "passed"]), (3, Verdict.INFRA, ["infra", "infra", "infra"])],
)
def test_only_a_proven_fault_of_the_machine_is_tried_again_and_at_most_twice(
    bench: Bench, times: int, verdict: Verdict, outcomes: list[str]
) -> None:
    result = only(bench.run({"a": "check('capacity')"}, containment=Unlucky(times)))
    assert result.verdict is verdict
    assert [str(attempt.outcome) for attempt in result.attempts] == outcomes
    assert "no memory" in result.reason


def test_no_room_for_scratch_blames_the_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(bench.folder / "missing"))
    result = only(bench.run({"a": "check('capacity')"}))
    assert result.verdict is Verdict.INFRA
    assert "scratch: no temporary folder" in result.reason


def test_no_descriptor_is_left_behind(bench: Bench) -> None:
    bench.run({"warm": "check('capacity')"})
    before = set(Path("/proc/self/fd").iterdir())
    codes = {"good": "check('capacity')", "bad": "die(9)"}
    bench.run(codes, containment=Unlucky(1))
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.fixture
def hangup() -> Iterator[None]:
    """SIGHUP as a terminal leaves it, also where the tests themselves run under `nohup`."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, handler)


def test_a_hangup_is_an_interrupt_unless_it_is_ignored(bench: Bench, hangup: None) -> None:
    """A closed terminal ends a run in order; `nohup` means that it goes on."""
    bench.view.hooks["capacity"] = lambda: os.kill(os.getpid(), signal.SIGHUP)
    record = bench.run({"a": "check('capacity'); hang()"})
    assert record.interrupted
    assert only(record).verdict is Verdict.NOT_RUN
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert only(bench.run({"a": "check('capacity')"})).verdict is Verdict.PASSED


def test_a_second_interrupt_ends_a_job_whose_deadline_has_passed_too(bench: Bench) -> None:
    """It is being asked to stop already, so that the first interrupt changes nothing for it."""
    later = [0.0]
    bench.view.hooks["capacity"] = lambda: later.__setitem__(0, 1000.0)  # longer than the job may take
    bench.view.hooks |= dict.fromkeys(("first", "second"), lambda: os.kill(os.getpid(), signal.SIGINT))
    code = """
signal.signal(15, lambda *_: (check('first'), check('second')))
check('capacity'); signal.pause(); hang(stubborn=True)
"""
    clock = lambda: time.monotonic() + later[0]  # noqa: E731
    job = new_job("a", checks=("capacity", "first", "second"))
    record = bench.run({"a": code}, job, clock=clock, grace_s=5000.0)
    assert record.interrupted
    assert only(record).verdict is Verdict.TIMEOUT  # that is what happened to it first


def test_what_a_job_says_in_bytes_that_are_no_text_is_shown_and_kept(bench: Bench) -> None:
    code = "check('capacity', 'failed', message='file ' + os.fsdecode(bytes([255]))); sys.exit(1)"
    job = only(bench.run({"a": code}))
    assert [check.message for check in job.last_checks] == ["file ?"]


COMMIT = "c0ffee" * 6 + "c0ff"
PASS, FAIL, DIE = "check('capacity')", "check('capacity', 'failed'); exit(1)", "os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(
    ("before", "now", "second", "verdict"),
    [
        (FAIL, PASS, {"sha": COMMIT}, "flaky"),
        (PASS, FAIL, {"sha": COMMIT}, "flaky"),
        (DIE, PASS, {"sha": COMMIT}, "passed"),
        (PASS, DIE, {"sha": COMMIT}, "failed"),
        (FAIL, PASS, {"sha": COMMIT.replace("c0", "d1")}, "passed"),
        (PASS, FAIL, {"sha": COMMIT, "faults": ("lse-base",)}, "failed"),
        (PASS, FAIL, {"sha": COMMIT, "engine_args": ("comm=gloo",)}, "failed"),
    ],
)
def test_the_ledger_of_a_commit_proves_a_flake(
    bench: Bench, before: str, now: str, second: Mapping[str, object], verdict: str
) -> None:
    bench.run({"x": before}, sha=COMMIT)
    assert only(bench.run({"x": now}, **second)).verdict == verdict


def test_another_suite_of_the_same_name_is_another_job(bench: Bench) -> None:
    """A suite, or a test file that it names, need not be part of the commit that harness runs from."""
    tests = bench.folder / "test_x.py"
    tests.write_text("def test_x(): assert 1 == 2")
    first = new_job("x", tests=(tests,))
    bench.run({"x": FAIL}, first, sha=COMMIT)
    other_checks = replace(first, checks=(*first.checks, *first.checks))
    assert only(bench.run({"x": f"{PASS};{PASS}"}, other_checks, sha=COMMIT)).verdict is Verdict.PASSED
    tests.write_text("def test_x(): assert 1 == 1")
    assert only(bench.run({"x": PASS}, first, sha=COMMIT)).verdict is Verdict.PASSED
    moved = replace(first, suite_path=bench.folder / "x.yaml", tags=("new",))
    assert only(bench.run({"x": FAIL}, moved, sha=COMMIT)).verdict is Verdict.FLAKY


def test_a_work_tree_with_changes_has_no_history(bench: Bench) -> None:
    for sha in (COMMIT + "+dirty", "version 0.1.0"):
        bench.run({"x": FAIL}, sha=sha)
        assert only(bench.run({"x": PASS}, sha=sha)).verdict is Verdict.PASSED
