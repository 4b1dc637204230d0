"""`harness suites check|schema`: the suite files themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Check suite files; print their JSON Schema.", no_args_is_help=True)


@app.callback()
def suites() -> None:
    """Suite files: YAML under a catalogue folder.

    Example: harness suites check
    """


@app.command()
def check(
    catalogue: Annotated[
        Path | None, typer.Option(envvar="HARNESS_SUITES", help="Catalogue folder (default: suites/).")
    ] = None,
) -> None:
    """Find every mistake in every suite file at once; exit 2 when there is one.

    Example: harness suites check --catalogue .harness/suites
    """
    from harness.cli.places import catalogue_folder
    from harness.errors import UsageError
    from harness.suites import load_catalogue

    folder = catalogue_folder(catalogue)
    found = len(load_catalogue(folder).suites)
    if not found:
        raise UsageError(f"{folder} holds no suite; allowed: a folder with files such as dcp/parity.yaml")
    print(f"{found} suite{'s' * (found > 1)} in {folder}: no mistake found")


@app.command()
def schema() -> None:
    """Print the JSON Schema of a suite file, for editors.

    Example: harness suites schema > suite.schema.json
    """
    from harness.cli.output import print_json
    from harness.suites import json_schema

    print_json(json_schema())
