"""The `harness` command: wires the subcommands, and turns every HarnessError into one line and its exit code.

Commands import what they need when they run: `harness --help` and `harness engine serve` start in a blink.
What escapes that is no HarnessError and no wrong usage is a bug of harness itself, and keeps its traceback.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import cast

import typer

from harness.cli import baseline, doctor, engine, evaluate, faults, listing, ratchet, reads, run, show, suites
from harness.cli.streams import ReaderGoneError, flush_streams, guard_streams
from harness.errors import HarnessError, SourceError, SourceErrors, UsageError

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
app.add_typer(reads.app, name="reads")
app.add_typer(baseline.app, name="baseline")
app.add_typer(ratchet.app, name="ratchet")

# What a shell reports for a command that SIGINT ended.
EXIT_INTERRUPT = 128 + signal.SIGINT

# The parser's own errors. Typer bundles its parser or imports it, by version; the base class is the same.
ParserError = cast(
    "type[Exception]", next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
)


def main() -> None:
    """Entry point of the console script; never returns."""
    guard_streams()
    try:
        code = _command()
        flush_streams()
    except HarnessError as error:
        code = error.exit_code
        _tell_last_words(error)
    sys.exit(code)


def _command() -> int:
    """Run the command; its exit code."""
    try:
        # Returns the code of a typer.Exit, and None when the command ran to its end.
        return app(prog_name="harness", standalone_mode=False) or 0
    except ParserError as error:
        return _tell_wrong_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPT


def _tell_wrong_usage(error: Exception) -> int:
    """One line, in the voice of all other errors, for what the parser refuses."""
    message = error.format_message()  # type: ignore[attr-defined]
    if message:  # empty when the help itself was the answer
        context = getattr(error, "ctx", None)
        see = f" (see: {context.command_path} --help)" if context else ""
        told = message.replace("Value error, ", "").replace("\n", " ").strip().rstrip(".")
        print(f"harness: {told}{see}", file=sys.stderr)
    return UsageError.exit_code


def _tell_last_words(error: HarnessError) -> None:
    """Places come first on their lines, as editors and scripts expect; nothing is told to a reader gone."""
    if isinstance(error, ReaderGoneError):
        with contextlib.suppress(HarnessError):
            flush_streams()
        return
    text = str(error) if isinstance(error, SourceError | SourceErrors) else f"harness: {error}"
    if isinstance(error, SourceErrors) and len(error.errors) > 1:
        files = len({each.mark.file for each in error.errors})
        text += f"\nharness: {len(error.errors)} mistakes in {files} file{'s' * (files > 1)}"
    detail = getattr(error, "detail", "")
    with contextlib.suppress(HarnessError):  # stderr itself may be what cannot be written
        print(text, *([detail] if detail else []), sep="\n", file=sys.stderr)
        flush_streams()
