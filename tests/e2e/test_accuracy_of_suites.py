"""`accuracy` through `harness run`: real engines, the trained model, and what the ledger keeps."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from runs import ROOT, World, gone, the_one, titles, until

SMALL = """
summary: a small sharded engine that does sums
profiles:
  cpu:
    needs: {cpu: 1}
    estimate: 20s
    timeout: 5m
    engine:
      kind: reference
      model: builtin:sums-gqa
      parallel: {tp: 2, dcp: 2}
      args: {kv-bytes: 8388608}
      launch_timeout: 60s
baseline: {parallel: {dcp: 1}}
checks:
  - accuracy: {task: sums, questions: 96, batch: 16, concurrency: 16, shots: 0, effect: 0.2, max_new_tokens: 160}
"""


@pytest.fixture
def sums(world: World) -> World:
    world.suite("sums")
    (world.folder / "suites" / "sums.yaml").write_text(SMALL)
    return world


def checks_of(world: World) -> dict[str, Any]:
    (job,) = world.shown()["jobs"]
    return {check["name"]: check for check in job["checks"]} | {
        "verdict": job["verdict"],
        "reason": job["reason"],
    }


def questions(world: World) -> list[dict[str, Any]]:
    code, out, err = world.run("show", "latest", "--questions", "--json")
    assert code == 0, err
    (job,) = json.loads(out)["jobs"]
    asked: list[dict[str, Any]] = job["questions"]
    return asked


def test_a_shipped_suite_passes_and_every_answer_is_kept(world: World) -> None:
    (world.folder / "pools.yaml").write_text("pools:\n  cpu: {executor: local, slots: 2}\n")
    code, out, err = world.run(
        "run", "dcp/gsm8k_dcp4", "--profile", "cpu", "--catalogue", str(ROOT / "suites")
    )
    assert code == 0, out + err
    figures = checks_of(world)["accuracy"]["figures"]
    assert figures["asked"] >= 128
    assert figures["accuracy"] >= 0.95
    assert figures["flips"] == []
    names = [gate["name"] for gate in figures["gates"]]
    assert names == ["recorded baseline", "finished as recorded", "paired drop", "paired flips"]
    assert "in 5 runs" in figures["recorded"]
    told = [line for line in out.splitlines() if " right = " in line or "95 % power" in line]
    assert len(told) >= 4
    assert all("sums (synthetic, not GSM8K)" in line for line in told)
    roles = [asked["role"] for asked in questions(world)]
    assert {role: roles.count(role) for role in roles} == {
        "baseline": figures["asked"],
        "engine": figures["asked"],
    }


def test_a_structural_fault_is_found_before_all_is_asked(sums: World) -> None:
    code, out, err = sums.run("run", "sums", "--profile", "cpu", "--fault", "owner-div")
    assert code == 1, out + err
    check = checks_of(sums)["accuracy"]
    assert check["outcome"] == "failed"
    assert check["figures"]["asked"] < 96
    assert check["figures"]["accuracy"] is None


def test_a_killed_engine_is_no_accuracy_failure_and_its_answers_stay(sums: World) -> None:
    harness = sums.start("run", "sums", "--profile", "cpu")
    log = sums.reports / "latest" / "sums@cpu" / "1" / "questions.jsonl"
    until(lambda: _answered(log, "engine") >= 16, "a batch of the engine under test")
    rank = the_one(harness.pid, "rank 1/2")
    assert rank is not None
    tree = list(titles(harness.pid))
    os.kill(rank, signal.SIGKILL)
    out, err = harness.communicate()
    assert harness.returncode == 1, out + err
    assert gone(tree)
    told = checks_of(sums)
    assert told["verdict"] == "failed"
    assert told["accuracy"]["outcome"] == "error"
    assert "engine died: after " in told["reason"]
    assert "rank 1 was killed by SIGKILL" in told["reason"]
    kept = [asked for asked in questions(sums) if asked["role"] == "engine"]
    assert len(kept) >= 16
    assert {asked["outcome"] for asked in kept} <= {"correct", "wrong"}


def _answered(log: Path, role: str) -> int:
    lines = log.read_text().splitlines() if log.exists() else []
    return sum(f'"role": "{role}"' in line for line in lines)
