"""kill -9 of anything in mid-run: a verdict where the harness lives, and nothing left of what ran."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from runs import LONG, World, all_listening, gone, listening_ports, the_one, titles, until

VICTIMS = {
    "rank": ("rank 1/2", "rank 1 was killed by SIGKILL"),
    "front": ("harness-engine front", "front was killed by SIGKILL"),
    "launcher": ("harness-engine launcher", "its launcher was killed by SIGKILL"),
    "job": ("-m pytest", "job process was killed by SIGKILL"),
}


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}


@pytest.mark.parametrize("containment", ["pidns", "guard"])
@pytest.mark.parametrize("victim", VICTIMS)
def test_what_dies_is_named_and_nothing_is_left(world: World, victim: str, containment: str) -> None:
    words, reason = VICTIMS[victim]
    world.suite("long", checks=LONG)
    segments = shared_memory()
    harness = world.start("run", "long", "--profile", "cpu", HARNESS_CONTAINMENT=containment)
    until(lambda: the_one(harness.pid, "rank 1/2") is not None, "the ranks run")
    tree = list(titles(harness.pid))
    ports = listening_ports(tree)
    assert ports, "the HTTP front listens"
    target = the_one(harness.pid, words)
    assert target is not None
    os.kill(target, signal.SIGKILL)
    out, err = harness.communicate()
    assert harness.returncode == 1, out + err
    assert "Traceback" not in out + err
    assert gone(tree)
    assert not ports & all_listening()
    assert shared_memory() <= segments
    (job,) = world.shown()["jobs"]
    assert job["verdict"] == "failed"
    assert reason in job["reason"]


@pytest.mark.parametrize("containment", ["pidns", "guard"])
def test_a_killed_harness_takes_everything_along_and_its_results_stay(world: World, containment: str) -> None:
    checks = LONG.replace("[active: {dcp: 2}, ", "[caps: {}, ")
    world.suite("long", checks=checks)
    segments = shared_memory()
    harness = world.start("run", "long", "--profile", "cpu", HARNESS_CONTAINMENT=containment)
    until(lambda: the_one(harness.pid, "rank 1/2") is not None, "the ranks run")
    tree = list(titles(harness.pid))
    ports = listening_ports(tree)
    harness.kill()
    harness.communicate()
    until(lambda: gone(tree), "every process ends")
    until(lambda: not ports & all_listening(), "the ports are free")
    assert shared_memory() <= segments
    (job,) = world.shown()["jobs"]
    assert (job["verdict"], job["reason"]) == ("not_run", "the run ended first")


def test_an_interrupt_is_130_and_leaves_a_verdict(world: World) -> None:
    world.suite("long", checks=LONG)
    harness = world.start("run", "long", "--profile", "cpu")
    until(lambda: the_one(harness.pid, "rank 1/2") is not None, "the ranks run")
    tree = list(titles(harness.pid))
    harness.send_signal(signal.SIGINT)
    out, err = harness.communicate()
    assert harness.returncode == 130, out + err
    assert gone(tree)
    assert "interrupted" in out
    (job,) = world.shown()["jobs"]
    assert job["verdict"] == "not_run"
