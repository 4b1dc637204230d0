"""`harness faults list`: what `--fault` can inject."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Faults that can be injected into the reference engine.", no_args_is_help=True)


@app.callback()
def faults() -> None:
    """Real DCP bugs, as small patches of the reference engine's seams.

    Example: harness faults list
    """


@app.command("list")
def list_faults(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the faults that `harness run --fault ID` and `harness engine serve --fault ID` know.

    Example: harness faults list --json
    """
    from harness.cli.output import print_json, print_table
    from harness.faults import FAULTS

    rows = sorted(FAULTS.values(), key=lambda fault: fault.id)
    if as_json:
        print_json(
            {"schema": 1, "faults": [{"id": f.id, "title": f.title, "source": f.source} for f in rows]}
        )
    else:
        print_table(["fault", "what it does", "seen in"], [[f.id, f.title, f.source] for f in rows])
