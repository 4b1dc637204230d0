"""What accuracy, whole answers, log-probabilities and KV rows each see of every planted fault: a measured table.

For each fault two engines are launched with it, one after the other: the trained model answers sums under the
arguments of the accuracy suite, the random one goes through the parity suite's own checks. Everything is
compared with dcp=1, asked once at the beginning. `none` is measured like a fault: texts differ where fewer than
its own are those of dcp=1. It and `len-ceil` are measured again with pools of zeros, which hide wrong reads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from fault_lab import HEALTHY, Lab, Row
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.errors import HarnessError
from harness.faults import FAULTS, Reach, get_fault
from harness.verdict.accuracy_gates import GateName

EXAMPLE = """example:
  python benchmarks/fault_table.py --faults none lse-base len-ceil --questions 200 --json table.json
  python benchmarks/fault_table.py --into docs/gates.md      # all faults, about ten minutes on two quiet cores
"""

# Only these are met by the engines that are launched here.
ONE_ENGINE = [fault.id for fault in FAULTS.values() if fault.reach is Reach.ENGINE]
BEGIN, END = "<!-- table:begin -->", "<!-- table:end -->"
# The check names at most this many wrong rows in its figures.
ROWS_TOLD = 100
# Measured again without poison, which is what makes a read past a shard's end show.
UNPOISONED = (HEALTHY, "len-ceil")
SEEN, UNSEEN = "sees", "–"
# The last columns of the table: who sees the fault.
WAYS = 5
LEGEND = """\
`Δ logprob` is the largest difference to dcp=1 in nats: on the trained model over 32 answers, on the random one in
`parity` and `batch`, which allow 1e-4. The last five columns say what turns red: the gate against the recorded score,
the paired gates, whole answers compared with dcp=1, `parity` (or only `batch`), and `rows`.
"""
HEAD = (
    "fault",
    "right",
    "5-shot",
    "same text",
    "Δ logprob, sums",
    "Δ logprob, random",
    "rows wrong",
    "recorded",
    "paired",
    "text",
    "logprobs",
    "rows",
)


def cells(row: Row, healthy: Row) -> list[str]:
    """One line of the table. The last five say who sees the fault, the others what was measured."""
    recorded = {GateName.RECORDED, GateName.FINISHED_RECORDED} & set(row.gates)
    paired = {GateName.DROP, GateName.FLIPS, GateName.FINISHED_PAIRED} & set(row.gates)
    logprobs = SEEN if "parity" in row.checks else "in batches" if "batch" in row.checks else UNSEEN
    return [
        row.fault + ("" if row.poison is None else f", poison {row.poison:g}"),
        f"{row.right} / {row.asked}",
        f"{row.few_shot_right} / {row.few_shot_asked}",
        f"{100 * row.same_text / row.asked:.1f} %",
        f"{row.sums_gap:.1g}",
        f"{max(row.parity_gap, row.batch_gap):.1g}",
        f"{row.rows_wrong}{'+' if row.rows_wrong == ROWS_TOLD else ''}",
        SEEN if recorded else UNSEEN,
        SEEN if paired else UNSEEN,
        SEEN if row.same_text < healthy.same_text else UNSEEN,
        logprobs,
        SEEN if "rows" in row.checks else UNSEEN,
    ]


def markdown(rows: Sequence[Row], headline: str) -> str:
    """The table with its headline, for a page of docs; the last line counts who sees how many faults."""
    told = [cells(row, rows[0]) for row in rows]
    planted = [line for row, line in zip(rows, told, strict=True) if row.poison is None][1:]
    seen = [sum(line[column] != UNSEEN for line in planted) for column in range(len(HEAD) - WAYS, len(HEAD))]
    total = [f"seen of {len(planted)}", *[""] * (len(HEAD) - WAYS - 1), *map(str, seen)]
    lines = [_line(parts) for parts in (HEAD, ["---"] * len(HEAD), *told, total)]
    return "\n".join([f"{headline}.\n{LEGEND}", *lines]) + "\n"


def _line(parts: Sequence[str]) -> str:
    return f"| {' | '.join(parts)} |"


def put_into(page: Path, table: str) -> None:
    """Replace what stands between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no {BEGIN} … {END} to put the table between")
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")


def write_json(file: Path, rows: Sequence[Row], *, layout: str, headline: str) -> None:
    """All figures so far: whoever stops the benchmark keeps what it has measured."""
    told = {"schema": 1, "layout": layout, "baseline": headline, "rows": [asdict(row) for row in rows]}
    file.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr; whoever begins the next of `total` parts calls what this gives, with its name."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total, completed=-1)
        yield lambda name: bar.update(task, advance=1, description=name)
        bar.update(task, advance=1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layout", choices=("dcp4", "dcp8"), default="dcp4", help="tp4/dcp4 or tp8/dcp8")
    parser.add_argument("--faults", nargs="+", default=[HEALTHY, *ONE_ENGINE], metavar="ID")
    parser.add_argument("--model", default="builtin:sums-gqa", help="the trained model")
    parser.add_argument("--questions", type=int, default=200, help="zero-shot, for every row")
    parser.add_argument("--few-shot-questions", type=int, default=50, help="5-shot, for every row")
    parser.add_argument("--recorded", type=int, default=1319, help="questions of the recorded baseline")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between a page's markers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, row after row")
    args = parser.parse_args()
    for fault in args.faults:
        if fault != HEALTHY:
            get_fault(fault)
    return args


def main() -> None:
    args = parse()
    # What is healthy decides which texts count as different, so it is always there, and first.
    faults = [HEALTHY, *(fault for fault in args.faults if fault != HEALTHY)]
    wanted: list[tuple[str, float | None]] = [(fault, None) for fault in faults]
    wanted += [(fault, 0.0) for fault in UNPOISONED if fault in faults]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as logs, progress(1 + len(wanted)) as begin:
        lab = Lab(
            args.layout,
            model=args.model,
            questions=args.questions,
            few_shot=args.few_shot_questions,
            recorded=args.recorded,
            logs=Path(logs),
        )
        begin("dcp=1")
        dcp1 = lab.ask_dcp1()
        for fault, poison in wanted:
            begin(fault)
            rows.append(lab.measure(fault, poison=poison, dcp1=dcp1))
            if args.json:
                write_json(args.json, rows, layout=args.layout, headline=dcp1.headline())
    table = markdown(rows, dcp1.headline())
    print(table, end="")
    if args.into:
        put_into(args.into, table)


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        print(f"fault_table.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
