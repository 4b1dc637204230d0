"""Measuring the sources of `harness baseline record` one after the other, and writing each record at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress as Bars

from harness.checks.questions import QuestionPlan, make_plan
from harness.checks.recording import Progress, as_record, measure
from harness.checks.reference_file import load_baselines, with_record, write_baselines
from harness.checks.references import RecordedBaseline, configuration
from harness.cli.baseline_sources import Source, running, told_by


def record_all(sources: Sequence[Source], *, runs: int, seconds: float, file: Path, commit: str) -> None:
    """One record a configuration; each is written as soon as it is known."""
    done: dict[str, str] = {}
    load_baselines(file)  # a file that cannot be read is told before hours of work
    for source in sources:
        measured = _measure(source, done=done, runs=runs, seconds=seconds, commit=commit)
        if measured is None:
            continue
        done[measured.fingerprint] = source.name
        write_baselines(file, with_record(load_baselines(file), measured))
        print(
            f"recorded {measured.label}, {measured.model}: {measured.told}; "
            f"{measured.flips:,} flips of {measured.compared:,} → {file}"
        )


def _measure(
    source: Source, *, done: dict[str, str], runs: int, seconds: float, commit: str
) -> RecordedBaseline | None:
    """The record, or None where an earlier source was the same configuration in another layout."""
    plan = make_plan(source.params)
    with running(source) as client:
        wanted = configuration(plan, told_by(client), model=source.model)
        if wanted.fingerprint in done:
            print(f"{source.name}: the same configuration as {done[wanted.fingerprint]}", file=sys.stderr)
            return None
        with _bar(source.name, plan, runs=runs) as progress:
            samples = measure(client, plan, runs=runs, seconds=seconds, progress=progress)
    note = f"measured on {source.name}" if not isinstance(source.target, str) else None
    return as_record(samples, wanted, commit=commit, note=note)


@contextmanager
def _bar(name: str, plan: QuestionPlan, *, runs: int) -> Iterator[Progress]:
    """A bar on stderr that leaves nothing behind; silent in a pipe."""
    console = Console(stderr=True)
    with Bars(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(name, total=runs * len(plan.items))

        def advance(run: int, records: Sequence[object]) -> None:
            bars.update(bar, advance=len(records), description=f"{name} run {run} of {runs}")

        yield advance
