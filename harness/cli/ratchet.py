"""`harness ratchet`: topology reads in an engine's source that may only become fewer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.ratchet import Baseline, Judgement, Rules, Scan

app = typer.Typer(no_args_is_help=True)

# A scan of a small tree is over before a bar could be read.
BAR_AFTER_SECONDS = 2.0


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


@app.callback()
def ratchet() -> None:
    """Topology reads of an engine's source that should come from another source.

    Example: harness ratchet scan ../sglang --baseline configs/ratchet/sglang-0.5.18.yaml
    """


@app.command()
def scan(
    path: Annotated[Path, typer.Argument(help="A checkout of the engine, its package, or one file of it.")],
    rules: Annotated[
        Path | None,
        typer.Option(envvar="HARNESS_RATCHET_RULES", help="Rules file (default: configs/ratchet.yaml)."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Numbers that may only go down: more is exit 1, with the new call sites."),
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline; it goes down only.")] = False,
    allow_increase: Annotated[
        str, typer.Option(metavar="REASON", help="With --update: let numbers up, and record why.")
    ] = "",
    form: Annotated[
        Format, typer.Option("--format", help="github: annotations of a workflow at the call sites.")
    ] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Count topology reads: direct, aliased, defensive, copied onto workers, too early in a constructor.

    Exit 0: as the baseline allows. 1: more, or a file that does not parse. 2: wrong usage, an idle exemption.

    Example: harness ratchet scan ../sglang --baseline configs/ratchet/sglang-0.5.18.yaml --format github
    """
    from harness.ratchet import judge, load_baseline, load_rules, save_baseline, updated

    _check(path, baseline, update=update, allow_increase=allow_increase)
    loaded = load_rules(_rules_file(rules))
    old = load_baseline(baseline) if baseline is not None and (baseline.exists() or not update) else None
    judgement = judge(_scan(path, loaded), loaded, old)
    _print(judgement, loaded, Format.JSON if as_json else form, old)
    if update and baseline is not None:
        save_baseline(baseline, updated(judgement, old, allow_increase=allow_increase))
        print(f"wrote {baseline}", file=sys.stderr)
        return
    raise typer.Exit(judgement.exit_code)


def _check(path: Path, baseline: Path | None, *, update: bool, allow_increase: str) -> None:
    """Raises UsageError for options that mean nothing together."""
    from harness.errors import UsageError

    if update and baseline is None:
        raise UsageError("--update writes a baseline; give it with --baseline FILE")
    if allow_increase and not update:
        raise UsageError("--allow-increase goes with --update")
    if baseline is not None and path.is_file():
        raise UsageError(f"{path} is one file; a baseline is of a whole tree")


def _rules_file(given: Path | None) -> Path:
    """As given, `./configs/ratchet.yaml`, or the one of the checkout that harness runs from."""
    from harness.cli.places import CHECKOUT
    from harness.errors import UsageError

    if given is not None:
        return given
    for file in (Path("configs/ratchet.yaml"), CHECKOUT / "configs" / "ratchet.yaml"):
        if file.is_file():
            return file
    raise UsageError("no rules: there is no configs/ratchet.yaml here; give one with --rules")


def _print(judgement: Judgement, rules: Rules, form: Format, old: Baseline | None) -> None:
    from harness.cli.output import print_json
    from harness.ratchet import as_json, github_lines, text_lines

    if form is Format.JSON:
        print_json(as_json(judgement, rules))
        return
    lines = (
        github_lines(judgement, rules, baseline=old is not None)
        if form is Format.GITHUB
        else text_lines(judgement, rules)
    )
    print("\n".join(lines))


def _scan(path: Path, rules: Rules) -> Scan:
    from harness.ratchet import scan as scan_tree

    with _bar() as progress:
        return scan_tree(path, rules, progress=progress)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal's stderr, once the scan has taken long enough for one; nothing elsewhere."""
    from time import monotonic

    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    bar = Progress(console=console, transient=True)
    task = bar.add_task("scanning", total=None)
    began = monotonic()

    def progress(done: int, total: int) -> None:
        if monotonic() - began > BAR_AFTER_SECONDS and not bar.live.is_started:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield progress
    finally:
        bar.stop()
