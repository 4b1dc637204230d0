"""Options that several commands share, so that they read and behave alike everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


def _source_path(given: str) -> Path:
    """Raises UsageError for an empty one, as of an unset variable: it would be the folder one is in."""
    from harness.errors import UsageError

    if not given:
        raise UsageError("--source is empty; allowed: the path of a checkout of SGLang")
    return Path(given)


class ProfileChoice(StrEnum):
    """`auto`: every profile that a suite declares; those that cannot run here are `not_run`, with the reason."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


PatternsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Suite names or globs, such as 'dcp/*', also with a point: 'SUITE\\[dcp=4]', and job ids; "
        "upstream paths work too."
    ),
]
ProfileOption = Annotated[
    ProfileChoice,
    typer.Option(
        envvar="HARNESS_PROFILE",
        help="auto runs every profile that can run here; a profile asked for by name must run (else exit 3).",
    ),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option(envvar="HARNESS_TAGS", help="Only suites with all these tags; a,b or given again."),
]
TriggerOption = Annotated[
    str | None, typer.Option(help="Only suites of this trigger, such as pr or nightly.")
]
PoolOption = Annotated[str | None, typer.Option(envvar="HARNESS_POOL", help="Only this pool.")]
CatalogueOption = Annotated[
    Path | None, typer.Option(envvar="HARNESS_SUITES", help="Catalogue folder (default: suites/).")
]
PoolsOption = Annotated[
    Path | None, typer.Option(envvar="HARNESS_POOLS", help="Pools file (default: configs/pools.yaml).")
]
ReportsOption = Annotated[
    Path | None, typer.Option(envvar="HARNESS_REPORTS", help="Folder of runs (default: reports/).")
]
EngineArgOption = Annotated[
    list[str] | None,
    typer.Option(
        envvar="HARNESS_ENGINE_ARGS",
        help="Engine argument on top of the suite's, such as comm=gloo; repeatable.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        help="What tests look at: reference, sglang, or sglang@VERSION (default: the suite's first)."
    ),
]
SourceOption = Annotated[
    Path | None,
    typer.Option(
        parser=_source_path,
        metavar="PATH",
        help="Test this checkout of SGLang; asks for --target sglang by itself.",
    ),
]


def timeout_seconds(given: str) -> float:
    """The value of a `--timeout`. Raises UsageError for what is no duration."""
    from harness.errors import UsageError
    from harness.suites import parse_duration

    try:
        return parse_duration(given)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from None
