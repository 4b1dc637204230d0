"""The `harness` command: wires the subcommands, and turns every HarnessError into one line and its exit code.

Commands import what they need when they run: `harness --help` and `harness engine serve` start in a blink.
"""

from __future__ import annotations

import signal
import sys

import typer

from harness.cli import doctor, engine, evaluate, faults, listing, run, show, suites
from harness.errors import HarnessError

app = typer.Typer(
    name="harness",
    help="Regression and CI tests for distributed inference topologies.\n\n"
    "Example: harness run 'dcp/*' --tags smoke",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("list")(listing.list_suites)
app.command("plan")(listing.plan)
app.command("show")(show.show)
app.command("eval")(evaluate.evaluate)
app.command("doctor")(doctor.doctor)
app.add_typer(suites.app, name="suites")
app.add_typer(engine.app, name="engine")
app.add_typer(faults.app, name="faults")

# What a shell reports for a command that SIGINT ended.
EXIT_INTERRUPT = 128 + signal.SIGINT


def main() -> None:
    """Entry point of the console script; never returns."""
    try:
        app(prog_name="harness")
    except HarnessError as error:
        print(f"harness: {error}", file=sys.stderr)
        detail = getattr(error, "detail", "")
        if detail:
            print(detail, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPT)
