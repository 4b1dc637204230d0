"""Runs pytest on suite files in a process of its own, as a user does, and reads what it streamed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

TINY = """
summary: the smallest sharded engine there is
tags: [smoke]
profiles:
  cpu:
    needs: {{cpu: 1}}
    estimate: 10s
    timeout: 5m
    engine:
      kind: reference
      model: {model}
      parallel: {{tp: 2, dcp: 2}}
      args: {{page-size: 4, kv-bytes: 65536{args}}}
      launch_timeout: 60s
{baseline}
checks: {checks}
"""

BASELINE = "baseline: {parallel: {dcp: 1}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pytest:
    """What the process left; `checks` are the streamed check results by name."""

    code: int
    out: str
    checks: dict[str, dict[str, Any]]


def tiny_suite(
    folder: Path,
    *,
    checks: str,
    model: str = "builtin:random-gqa",
    args: str = "",
    baseline: str = BASELINE,
    name: str = "tiny",
) -> Path:
    """Write a suite of one two-rank engine; `checks` is YAML flow."""
    file = folder / "suites" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(TINY.format(checks=checks, model=model, args=args, baseline=baseline))
    return file


def command(*args: str | Path) -> list[str]:
    """By module, so that it is the same with and without the installed entry point."""
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *plugins, *map(str, args)]


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **extra}


def run_pytest(*args: str | Path, cwd: Path, **extra: str) -> Pytest:
    """Run to the end; `cwd` also gets `events.jsonl`."""
    log = cwd / "events.jsonl"
    done = subprocess.run(
        command(*args, "--report-log", log),
        cwd=cwd,
        env=environment(**extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Pytest(code=done.returncode, out=done.stdout, checks=read_checks(log))


def read_checks(log: Path) -> dict[str, dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    events = [json.loads(line) for line in lines]
    return {
        value["name"]: value
        for event in events
        if event.get("$report_type") == "TestReport" and event["when"] == "call"
        for key, value in event["user_properties"]
        if key == "harness_check"
    }
