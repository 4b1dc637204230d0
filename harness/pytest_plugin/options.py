"""What the command line of pytest takes from harness, and how values of it are read."""

from __future__ import annotations

from pathlib import Path

import pytest


def add_options(parser: pytest.Parser) -> None:
    """All of them begin with `--harness-`."""
    group = parser.getgroup("harness", "topology suites")
    group.addoption("--harness-profile", default="cpu", choices=["cpu", "gpu"],
                    help="profile of the suite files to run (default: cpu)")  # fmt: skip
    group.addoption("--harness-catalogue", default=None, metavar="DIR",
                    help="folder that suite names are relative to (default: the nearest one named suites)")  # fmt: skip
    group.addoption("--harness-target", default=None, metavar="NAME",
                    help="what the tests look at: reference or sglang (default: the suite's first)")  # fmt: skip
    group.addoption("--harness-excuse", action="append", default=[], nargs=2, metavar=("TEST", "REASON"),
                    help="skip this test of the one file that is run, with the reason; may be repeated")  # fmt: skip
    group.addoption("--harness-matrix", action="append", default=[], metavar="NAME=VALUE",
                    help="only the matrix point with this value; may be repeated")  # fmt: skip
    group.addoption("--harness-fault", action="append", default=[], metavar="ID",
                    help="inject this fault into the engine under test; may be repeated")  # fmt: skip
    group.addoption("--harness-engine-arg", action="append", default=[], metavar="NAME=VALUE",
                    help="an engine argument on top of the suite's, such as comm=gloo")  # fmt: skip
    group.addoption("--harness-baseline-cache", default=None, metavar="DIR",
                    help="where answers of dcp=1 are kept for later runs (default: nowhere)")  # fmt: skip
    group.addoption("--harness-engine-sha", default=None, metavar="SHA",
                    help="what the engine is known to be; nothing is cached for an unknown one")  # fmt: skip
    group.addoption("--harness-gated-checks", default=1, type=int, metavar="N",
                    help="accuracy checks of this run, which share one allowance of false alarms")  # fmt: skip
    group.addoption("--harness-attempt-dir", default=None, metavar="DIR",
                    help="where engine logs go (default: a folder that is kept only after a failure)")  # fmt: skip


def path_of(given: str | None) -> Path | None:
    """An option that may have been left out."""
    return None if given is None else Path(given)


def pairs_of(given: list[str], *, option: str) -> dict[str, str]:
    """`["a=1"]` → `{"a": "1"}`; raises UsageError for anything else."""
    from harness.errors import UsageError

    pairs = [item.partition("=") for item in given]
    for item, (name, equals, _) in zip(given, pairs, strict=True):
        if not (name and equals):
            raise UsageError(f"{option} is {item!r}; allowed: NAME=VALUE")
    return {name: value for name, _, value in pairs}
