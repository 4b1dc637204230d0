"""`QuestionLog`: whole batches, in order, for whoever tails the file; and a bell that never does harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.checks.question_log import DOORBELL, QuestionLog
from harness.errors import InfraError
from harness.verdict import QuestionOutcome, QuestionRecord, QuestionRole, decode_question


def record(number: int) -> QuestionRecord:
    return QuestionRecord(
        question=number, prompt_hash="ab", outcome=QuestionOutcome.CORRECT, expected="42", answer="42"
    )


def numbers(path: Path) -> list[int]:
    return [decode_question(line).record.question for line in path.read_bytes().splitlines()]


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch):
    """The read end of a doorbell that this process may ring."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    monkeypatch.setenv(DOORBELL, str(theirs))
    yield ours
    os.close(ours)
    os.close(theirs)


def test_batches_follow_each_other_and_each_rings_once(tmp_path, bell):
    log = QuestionLog(tmp_path / "questions.jsonl")
    log.write("accuracy", QuestionRole.BASELINE, [record(1), record(2)])
    log.write("accuracy", QuestionRole.ENGINE, [])
    QuestionLog(tmp_path / "questions.jsonl").write("accuracy", QuestionRole.ENGINE, [record(3)])
    assert numbers(tmp_path / "questions.jsonl") == [1, 2, 3]
    assert os.read(bell, 10) == b".."


def test_without_a_path_nothing_is_written_or_rung(bell):
    QuestionLog(None).write("accuracy", QuestionRole.ENGINE, [record(1)])
    with pytest.raises(BlockingIOError):
        os.read(bell, 1)


@pytest.mark.parametrize("descriptor", ["", "no number", "999999", "-1"])
def test_a_bell_that_is_not_there_is_no_trouble(tmp_path, monkeypatch, descriptor):
    monkeypatch.setenv(DOORBELL, descriptor)
    QuestionLog(tmp_path / "q").write("accuracy", QuestionRole.ENGINE, [record(1)])
    assert numbers(tmp_path / "q") == [1]


def test_another_file_under_the_number_of_the_bell_is_left_alone(tmp_path, monkeypatch):
    with (tmp_path / "other").open("w") as other:
        monkeypatch.setenv(DOORBELL, str(other.fileno()))
        QuestionLog(tmp_path / "q").write("accuracy", QuestionRole.ENGINE, [record(1)])
    assert (tmp_path / "other").read_bytes() == b""


def test_a_disk_that_is_full_is_told_as_the_machine_s_fault():
    with pytest.raises(InfraError, match="question records cannot be written to /dev/full: No space left"):
        QuestionLog(Path("/dev/full")).write("accuracy", QuestionRole.ENGINE, [record(1)])


def test_a_kill_loses_at_most_the_batch_in_flight(tmp_path):
    """The writer is killed in the midst of writing; the kernel may cut its last append short."""
    code = """
import sys
from pathlib import Path
from test_question_log import QuestionLog, QuestionRole, record
log = QuestionLog(Path(sys.argv[1]))
while True:
    log.write("accuracy", QuestionRole.ENGINE, [record(n) for n in range(1, 65)])
    print(".", flush=True)
"""
    path = tmp_path / "questions.jsonl"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, env=env) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    found = [decode_question(line).record.question for line in whole.splitlines()]
    assert len(found) >= 20 * 64
    assert found == (list(range(1, 65)) * (len(found) // 64 + 1))[: len(found)]
