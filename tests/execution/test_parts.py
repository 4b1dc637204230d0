"""The small parts: paths, slot locks, scratch folders, the command of a job, the loop's way out."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_bench import Bench, new_job

from harness.containment.proc import descendants_of
from harness.errors import InfraError, UsageError
from harness.execution import Launch, RunOptions, RunPaths, pytest_command
from harness.execution.command import job_environment
from harness.execution.scratch import make_scratch, sweep_scratch
from harness.execution.slots import SlotLocks


def test_paths_are_where_the_docs_say(tmp_path: Path) -> None:
    paths = RunPaths(reports=tmp_path, run="r1")
    attempt = tmp_path / "r1" / "dcp" / "x@cpu[dcp=4,page=16]" / "2"
    job_id = "dcp/x@cpu[dcp=4,page=16]"
    assert paths.events(job_id, 2) == attempt / "events.jsonl"
    assert paths.log(job_id, 2) == attempt / "job.log"


@given(st.sets(st.text(alphabet="a/.%[]= é", max_size=6), min_size=2, max_size=6))
def test_different_matrix_points_get_different_folders_inside_the_run(points: set[str]) -> None:
    paths = RunPaths(reports=Path("/reports"), run="r")
    folders = {paths.job_dir(f"s@cpu[{point}]") for point in points}
    assert len(folders) == len(points)
    assert all(folder.parent == paths.run_dir for folder in folders)


def test_latest_always_points_at_the_run_started_last(tmp_path: Path) -> None:
    for run in ("one", "two"):
        RunPaths(reports=tmp_path, run=run).create()
        assert (tmp_path / "latest").readlink() == Path(run)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest", "one", "two"]


def test_a_reports_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write the reports folder .*file: Not a directory"):
        RunPaths(reports=tmp_path / "file", run="r").create()


def test_a_full_disk_under_the_reports_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "symlink_to", full)
    with pytest.raises(InfraError, match=r"cannot write the reports folder .*No space left"):
        RunPaths(reports=tmp_path, run="r").create()


def test_a_slot_has_one_holder(tmp_path: Path) -> None:
    mine, theirs = SlotLocks(tmp_path / "slots"), SlotLocks(tmp_path / "slots")
    assert mine.take(["cpu:0", "cpu:1"]) == {"cpu:0", "cpu:1"}
    assert theirs.take(["cpu:0", "cpu:1", "gpu:0"]) == {"gpu:0"}
    mine.release(["cpu:1"])
    assert theirs.take(["cpu:0", "cpu:1"]) == {"cpu:1"}
    mine.close()
    assert theirs.take(["cpu:0"]) == {"cpu:0"}
    theirs.close()
    assert sorted(entry.name for entry in (tmp_path / "slots").iterdir()) == ["cpu-0", "cpu-1", "gpu-0"]


def test_a_slot_that_cannot_be_locked_blames_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InfraError, match=r"slots: .*file/slots cannot be locked: Not a directory"):
        SlotLocks(tmp_path / "file" / "slots")
    locks = SlotLocks(tmp_path / "slots")
    (tmp_path / "slots" / "cpu-0").symlink_to("missing/file")
    with pytest.raises(InfraError, match=r"cpu-0 cannot be locked: No such file"):
        locks.take(["cpu:0"])


def test_a_slot_made_by_another_user_can_be_held(tmp_path: Path) -> None:
    (tmp_path / "cpu-0").touch(mode=0o444)
    program = """
import os, sys
from pathlib import Path
from harness.execution.slots import SlotLocks
if os.geteuid() == 0:
    os.seteuid(65534)  # root may write anything
print(*SlotLocks(Path(sys.argv[1])).take(["cpu:0"]))
"""
    tmp_path.chmod(0o755)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program, "."], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == "cpu:0", done.stderr


def test_a_child_process_does_not_hold_the_slot(tmp_path: Path) -> None:
    mine, theirs = SlotLocks(tmp_path), SlotLocks(tmp_path)
    mine.take(["cpu:0"])
    with subprocess.Popen(["sleep", "1000"], close_fds=False) as child:
        mine.close()
        assert theirs.take(["cpu:0"]) == {"cpu:0"}
        child.kill()
    theirs.close()


def test_scratch_in_use_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = make_scratch()
    (scratch.path / "file").touch()
    assert len(str(scratch.path.relative_to(tmp_path))) < 30  # a socket's path has 107 bytes in all
    orphan = scratch.path.with_name("orphan")
    orphan.mkdir()
    for odd in ("file", "link", "pipe"):  # sorted on both sides of the orphan, whose turn must come
        {"file": Path.touch, "link": lambda path: path.symlink_to(orphan), "pipe": os.mkfifo}[odd](
            orphan.with_name(f"a-{odd}")
        )
    assert sweep_scratch() == [orphan]
    assert (scratch.path / "file").exists()
    scratch.remove()
    assert not scratch.path.exists()


def test_a_scratch_parent_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "precious").mkdir(parents=True)
    (tmp_path / f"harness-{os.getuid()}").symlink_to(elsewhere)
    assert sweep_scratch() == []
    assert (elsewhere / "precious").exists()


def launch(**others: object) -> Launch:
    job = new_job("dcp/x", cpu=2, **others)
    options = RunOptions(faults=("lse-base",), engine_args=("comm=gloo", "page-size=16"))
    folder = Path("attempt")
    return Launch(
        job=job,
        attempt_dir=folder,
        events=folder / "events.jsonl",
        scratch=Path("scratch"),
        devices=("gpu:2", "gpu:5"),
        doorbell=7,
        options=options,
    )


def test_the_command_of_a_job_says_all_of_it() -> None:
    command = pytest_command(launch(matrix={"dcp": 4, "comm": "a2a"}, faults=("lse-base",)))
    assert command[:4] == [sys.executable, "-m", "pytest", "suites/dcp/x.yaml"]
    pairs = list(pairwise(command))
    for pair in (
        ("-p", "harness.pytest_plugin"),
        ("--harness-profile", "cpu"),
        ("--harness-matrix", "dcp=4"),
        ("--harness-matrix", "comm=a2a"),
        ("--harness-fault", "lse-base"),
        ("--harness-engine-arg", "comm=gloo"),
        ("--harness-engine-arg", "page-size=16"),
        ("--harness-attempt-dir", "attempt"),
        ("--report-log", "attempt/events.jsonl"),
    ):
        assert pair in pairs
    assert "-n" not in command
    assert "--strict-markers" in command


def test_plain_tests_are_spread_over_the_slots() -> None:
    command = pytest_command(launch(checks=(), tests=(Path("suites/dcp/test_a.py"),)))
    assert ("-n", "2") in list(pairwise(command))


def test_the_environment_of_a_job_gives_it_its_gpus_only() -> None:
    outer = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "HOME": "h"}
    environment = job_environment(launch(env={"HOME": "suite"}), outer=outer)
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["HARNESS_DOORBELL_FD"] == "7"
    assert environment["HOME"] == "suite"


def test_deadlines_that_do_not_nest_start_nothing(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"'launch' of 9 s does not nest in 'job a@cpu' of 9 s"):
        bench.run({"a": "check('capacity')"}, new_job("a", timeout_s=9.0, launch_timeout_s=9.0))
    assert bench.view.told == []


def test_trouble_of_the_harness_itself_kills_the_jobs(bench: Bench) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    bench.view.hooks["capacity"] = broken
    with pytest.raises(ZeroDivisionError):
        bench.run({"a": "check('capacity'); hang(stubborn=True)"})
    assert descendants_of(os.getpid()) == []
    assert bench.view.told[-1] == "close"
