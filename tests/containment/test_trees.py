"""The promises of `harness.containment.base`, in both modes, against real processes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import pytest

from harness.containment import Containment, Ended
from harness.containment import tree as tree_module
from harness.containment.proc import children_of, descendants_of
from harness.errors import InfraError, UsageError

HERE = Path(__file__).parent
NASTY_SIZE = 7
PYTHON = [sys.executable, "-I", "-S"]
GRACE = 60.0

Until = Callable[[Callable[[], bool], str], None]
Living = Callable[[Iterable[int]], list[int]]


def nasty(ready: Path) -> list[str]:
    return [*PYTHON, str(HERE / "nasty.py"), str(ready)]


def run(containment: Containment, argv: list[str], *, log: int, **others: object) -> Ended:
    ended = containment.spawn(argv, cwd=HERE, env=os.environ, stdout=log, **others).wait(GRACE)  # type: ignore[arg-type]
    assert ended is not None
    return ended


def test_terminate_leaves_nothing_of_a_nasty_tree(
    containment: Containment, log: int, tmp_path: Path, until: Until, living: Living
) -> None:
    ready = tmp_path / "ready"
    tree = containment.spawn(nasty(ready), cwd=HERE, env=os.environ, stdout=log)
    until(ready.exists, "the nasty tree is complete")
    pids = tree.descendants()
    assert len(pids) == NASTY_SIZE
    assert tree.pid in pids
    assert tree.poll() is None

    ended = tree.terminate(grace_s=0.1)

    assert ended == Ended(signal=signal.SIGKILL)  # it ignores SIGTERM
    assert living(pids) == []
    assert tree.descendants() == []


def test_end_of_the_command_ends_its_tree(
    containment: Containment, log: int, tmp_path: Path, until: Until, living: Living
) -> None:
    ready = tmp_path / "ready"
    tree = containment.spawn(nasty(ready), cwd=HERE, env=os.environ, stdout=log)
    until(ready.exists, "the nasty tree is complete")
    pids = tree.descendants()

    os.kill(tree.pid, signal.SIGKILL)

    assert tree.wait(GRACE) == Ended(signal=signal.SIGKILL)
    assert living(pids) == []


def test_kill_9_of_the_supervisor_leaves_nothing(
    containment: Containment, tmp_path: Path, until: Until, living: Living
) -> None:
    ready = tmp_path / "ready"
    supervisor = subprocess.Popen(
        [sys.executable, str(HERE / "supervisor.py"), containment.name, str(ready)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        assert int(supervisor.stdout.readline()) > 0
        until(ready.exists, "the nasty tree is complete")
        supervisor.stdin.write("complete\n")
        supervisor.stdin.flush()
        pids = json.loads(supervisor.stdout.readline())
        assert len(pids) == NASTY_SIZE
        supervisor.kill()
    until(lambda: living(pids) == [], f"{pids} are gone")


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("raise SystemExit(0)", Ended(exit_code=0)),
        ("raise SystemExit(3)", Ended(exit_code=3)),
        ("raise SystemExit(137)", Ended(exit_code=137)),
        ("import os; os.kill(os.getpid(), 9)", Ended(signal=9)),
        ("import os; os.kill(os.getpid(), 15)", Ended(signal=15)),
        ("import os; os.abort()", Ended(signal=6)),
        ("import os; os.killpg(0, 9)", Ended(signal=9)),
    ],
)
def test_the_end_is_told_truthfully(containment: Containment, log: int, code: str, ended: Ended) -> None:
    assert run(containment, [*PYTHON, "-c", code], log=log) == ended


def test_a_polite_command_ends_within_the_grace(containment: Containment, log: int, until: Until) -> None:
    code = "import signal,sys; signal.signal(15, lambda *_: sys.exit(5)); print('up', flush=True)"
    argv = [*PYTHON, "-c", f"{code}; signal.pause()"]
    tree = containment.spawn(argv, cwd=HERE, env=os.environ, stdout=log)
    until(lambda: os.fstat(log).st_size > 0, "the command has its handler")
    assert tree.terminate(grace_s=GRACE) == Ended(exit_code=5)


def test_sigterm_reaches_only_the_command(containment: Containment, log: int, until: Until) -> None:
    """The command tidies up its own workers; a worker that got the signal first would look like a crash."""
    code = """
import os, signal, sys
worker = os.fork()
if worker == 0:
    print('up', flush=True)
    signal.pause()
def stop(*_):
    alive = os.waitpid(worker, os.WNOHANG) == (0, 0)
    os.kill(worker, 9)
    sys.exit(7 if alive else 8)
signal.signal(15, stop)
print('up', flush=True)
while True:
    signal.pause()
"""
    tree = containment.spawn([*PYTHON, "-c", code], cwd=HERE, env=os.environ, stdout=log)
    until(lambda: os.fstat(log).st_size == len("up\nup\n"), "both processes are up")
    assert tree.terminate(grace_s=GRACE) == Ended(exit_code=7)


def test_passed_descriptors_reach_the_command(containment: Containment, log: int) -> None:
    read, write = os.pipe()
    code = f"import os; os.write({write}, b'hello')"
    assert run(containment, [*PYTHON, "-c", code], log=log, pass_fds=(write,)) == Ended(exit_code=0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"hello"  # and end of file follows: no process keeps the other end


def test_the_command_sees_its_directory_environment_and_clean_signals(
    containment: Containment, log: int, tmp_path: Path
) -> None:
    code = (
        "import os, signal; print(os.getcwd(), dict(os.environ).get('WORD'), 'HOME' in os.environ, "
        "signal.pthread_sigmask(signal.SIG_BLOCK, []) == set(), sorted(os.listdir('/proc/self/fd')))"
    )
    status = "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"
    argv = [*PYTHON, "-c", f"{code}; {status}"]
    tree = containment.spawn(argv, cwd=tmp_path, env={"WORD": "here"}, stdout=log)
    assert tree.wait(GRACE) == Ended(exit_code=0)
    said = (tmp_path / "job.log").read_text().splitlines()
    assert said[0] == f"{tmp_path} here False True ['0', '1', '2', '3']"  # 3 is listdir's own
    # A Python command sets SIGPIPE (13) and SIGXFSZ (25) to ignored by itself; nothing else may be.
    # Above 31 are the real-time signals, of which libc keeps two to itself and lets nobody reset them.
    standard = (1 << 31) - 1
    assert int(said[1], 16) & standard == 1 << 12 | 1 << 24


def test_pidfd_turns_readable_at_the_end_and_not_before(containment: Containment, log: int) -> None:
    tree = containment.spawn(["cat", "/dev/full"], cwd=HERE, env=os.environ, stdout=log)
    tree.kill()
    select.select([tree.pidfd], [], [], GRACE)
    assert tree.poll() == Ended(signal=signal.SIGKILL)
    running = containment.spawn(["sleep", "1000"], cwd=HERE, env=os.environ, stdout=log)
    assert select.select([running.pidfd], [], [], 0)[0] == []
    assert running.terminate(grace_s=GRACE) == Ended(signal=signal.SIGTERM)


def test_stacks_are_asked_only_of_processes_that_catch_the_signal(
    containment: Containment, log: int, tmp_path: Path, until: Until
) -> None:
    code = """
import faulthandler, os, signal
if os.fork() == 0:
    print('up', flush=True)
    signal.pause()   # would die of SIGUSR1
faulthandler.register(signal.SIGUSR1, all_threads=True)
print('up', flush=True)
def waits_here():
    while True:
        signal.pause()
waits_here()
"""
    tree = containment.spawn([*PYTHON, "-c", code], cwd=HERE, env=os.environ, stdout=log)
    until(lambda: os.fstat(log).st_size >= len("up\nup\n"), "both processes are up")
    assert tree.dump_stacks() == [tree.pid]
    until(lambda: "in waits_here" in (tmp_path / "job.log").read_text(), "the stack is in the log")
    assert len(tree.descendants()) == 2
    tree.terminate(grace_s=GRACE)


def test_a_stopped_command_gets_its_sigterm(containment: Containment, log: int, until: Until) -> None:
    code = "import signal,sys; signal.signal(15, lambda *_: sys.exit(5)); print('up', flush=True)"
    argv = [*PYTHON, "-c", f"{code}; signal.pause()"]
    tree = containment.spawn(argv, cwd=HERE, env=os.environ, stdout=log)
    until(lambda: os.fstat(log).st_size > 0, "the command has its handler")
    os.kill(tree.pid, signal.SIGSTOP)
    assert tree.terminate(grace_s=GRACE) == Ended(exit_code=5)


@pytest.mark.parametrize("victim", ["init", "outermost"])
def test_stopping_a_link_of_the_chain_saves_no_process(
    containment: Containment, log: int, tmp_path: Path, until: Until, living: Living, victim: str
) -> None:
    """Someone may stop what they find in `ps`; a kill must not wait for what will never continue by itself."""
    ready = tmp_path / "ready"
    tree = containment.spawn(nasty(ready), cwd=HERE, env=os.environ, stdout=log)
    until(ready.exists, "the nasty tree is complete")
    pids = tree.descendants()
    os.kill(tree._init if victim == "init" else tree._outer.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
    tree.kill()
    assert tree.wait(GRACE) == Ended(signal=signal.SIGKILL)
    assert living(pids) == []


@pytest.mark.parametrize("victim", ["init", "outermost"])
@pytest.mark.parametrize("step", range(6))
def test_a_kill_at_any_step_of_the_start_blames_the_machine(
    containment: Containment, log: int, monkeypatch: pytest.MonkeyPatch, step: int, victim: str
) -> None:
    """The supervisor's calls are the steps; before one of them the init, or what started it, is killed."""
    steps = count()

    def killing(call: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **kwargs: object) -> object:
            if next(steps) == step:
                outer = children_of(os.getpid())[-1]
                inits = children_of(outer) if containment.name == "pidns" else [outer]
                for pid in inits if victim == "init" else [outer]:
                    os.kill(pid, signal.SIGKILL)
            return call(*args, **kwargs)

        return called

    monkeypatch.setattr(tree_module, "children_of", killing(children_of))
    monkeypatch.setattr(tree_module.os, "pidfd_open", killing(os.pidfd_open))
    monkeypatch.setattr(tree_module, "_expect", killing(tree_module._expect))
    try:
        tree = containment.spawn(
            [*PYTHON, "-c", "import signal; signal.pause()"], cwd=HERE, env={}, stdout=log
        )
    except InfraError as error:
        assert "the init ended before the command ran" in str(error)
    else:
        tree.kill()
        assert tree.wait(GRACE) == Ended(signal=signal.SIGKILL)
    assert descendants_of(os.getpid()) == []


def test_a_command_that_cannot_run_is_named(containment: Containment, log: int) -> None:
    with pytest.raises(UsageError, match=r"cannot execute no-such-program: No such file"):
        containment.spawn(["no-such-program"], cwd=HERE, env=os.environ, stdout=log)
    with pytest.raises(UsageError, match=r"cannot execute /etc/passwd: Permission denied"):
        containment.spawn(["/etc/passwd"], cwd=HERE, env=os.environ, stdout=log)


def test_spawning_from_a_passing_thread_is_refused(containment: Containment, log: int) -> None:
    refused: list[BaseException] = []

    def spawn() -> None:
        try:
            containment.spawn(["true"], cwd=HERE, env=os.environ, stdout=log)
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=spawn)
    thread.start()
    thread.join()
    assert "death signals follow the thread" in str(refused)


@pytest.mark.parametrize("containment", ["pidns"], indirect=True)
def test_kill_of_the_outermost_process_ends_a_namespace(
    containment: Containment, log: int, tmp_path: Path, until: Until, living: Living
) -> None:
    ready = tmp_path / "ready"
    tree = containment.spawn(nasty(ready), cwd=HERE, env=os.environ, stdout=log)
    until(ready.exists, "the nasty tree is complete")
    pids = tree.descendants()
    tree._outer.kill()  # type: ignore[attr-defined]
    assert tree.wait(GRACE) == Ended(signal=signal.SIGKILL)
    assert living(pids) == []
