"""`harness doctor`: what this machine can run, and what is missing for the rest."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import PoolsOption, ReportsOption
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.suites import Extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the report. `ok` None means: not needed for what runs here."""

    what: str
    ok: bool | None
    found: str


def doctor(
    pools: PoolsOption = None,
    reports: ReportsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say what this machine can run, and what is missing. Exit 1 when even CPU suites cannot run.

    Example: harness doctor
    """
    from harness.cli.output import print_json, print_table

    findings = [
        _python(),
        _torch(),
        *_extras(),
        _containment(),
        _ledger(reports),
        *_pools(pools),
        *_environments(),
    ]
    if as_json:
        lines = [{"what": f.what, "ok": f.ok, "found": f.found} for f in findings]
        print_json({"schema": 1, "findings": lines})
    else:
        words = {True: "ok", False: "MISSING", None: "-"}
        print_table(["", "what", "found"], [[words[f.ok], f.what, f.found] for f in findings])
    raise typer.Exit(1 if any(f.ok is False for f in findings) else 0)


def _python() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}, {cores} cores"
    return Finding(what="python", ok=True, found=f"{platform.python_version()} on {system}")


def _torch() -> Finding:
    try:
        found = version("torch")
    except PackageNotFoundError:
        return Finding(
            what="torch", ok=False, found="not installed: the reference engine needs it (make run)"
        )
    shm = "shm, gloo" if platform.machine() in ("x86_64", "AMD64") else "gloo (shm needs x86-64)"
    return Finding(what="torch", ok=True, found=f"{found}; reference engine over {shm}")


def _extras() -> list[Finding]:
    """Suites that need one say so and do not run without it, so a missing one is not red; a broken one is."""
    from harness.suites import Extra

    return [_extra(extra) for extra in Extra]


def _extra(extra: Extra) -> Finding:
    """Really imported, in a process of its own: what is found on the disk need not work."""
    what, install, module = f"extra [{extra}]", f"pip install 'harness[{extra}]'", extra.found
    if module is None:
        return Finding(what=what, ok=None, found=install)
    code = f"import {module}; print(getattr({module}, '__version__', ''))"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    said = ((done.stderr if done.returncode else done.stdout).strip().splitlines() or [""])[-1]
    if done.returncode:
        why = said or f"exit status {done.returncode}"
        return Finding(what=what, ok=False, found=f"{module} cannot be imported ({why}): {install}")
    if said and not extra.takes(said):
        least = ".".join(map(str, extra.least))
        return Finding(what=what, ok=False, found=f"{module} {said} is older than {least}: {install}")
    return Finding(what=what, ok=True, found="can be imported")


def _containment() -> Finding:
    from harness.containment import PidNamespace, choose_containment

    try:
        name = choose_containment().name
    except HarnessError as error:
        return Finding(what="containment", ok=False, found=str(error))
    if name == "pidns":
        return Finding(what="containment", ok=True, found=name)
    try:
        PidNamespace.probed()
    except HarnessError as error:
        return Finding(what="containment", ok=True, found=f"{name}, since {error}")
    return Finding(what="containment", ok=True, found=f"{name}, as HARNESS_CONTAINMENT says")


def _ledger(reports: ReportsOption) -> Finding:
    from harness.cli.places import reports_folder
    from harness.ledger import Ledger

    file = reports_folder(reports) / "ledger.db"
    try:
        with Ledger.open(file):
            return Finding(what="ledger", ok=True, found=str(file))
    except HarnessError as error:
        return Finding(what="ledger", ok=False, found=str(error))


def _pools(pools: PoolsOption) -> list[Finding]:
    from harness.cli.selection import working_pools
    from harness.engines import LAUNCHABLE

    findings = []
    for name, pool in working_pools(pools, only=None).items():
        # Without GPUs the reference engine still runs every suite at small size.
        ok = True if pool.devices else (False if pool.gpu is None else None)
        findings.append(Finding(what=f"pool {name}", ok=ok, found=pool.empty or " ".join(pool.devices)))
    findings.append(Finding(what="engine kinds", ok=True, found=", ".join(sorted(LAUNCHABLE))))
    return findings


def _environments() -> list[Finding]:
    """Only suites that look at a real engine need one, so a missing one is not red."""
    from harness.environments import build_command, describe, is_current, list_environments

    try:
        found = list_environments()
    except HarnessError as error:
        return [Finding(what="sglang environments", ok=None, found=str(error))]
    if not found:
        return [Finding(what="sglang environments", ok=None, found=f"none: {build_command()}")]
    current = ["; current" if is_current(environment) else "" for environment in found]
    return [
        Finding(what=environment.name, ok=True, found=describe(environment) + mark)
        for environment, mark in zip(found, current, strict=True)
    ]
