"""Score the answers of real models that OpenAI published with GSM8K, and compare the models pair by pair.

    python tools/score_solutions.py example_model_solutions.jsonl

Shows on real answers that harness reads and scores as the data's authors did, and what its paired test says of
real differences. Reads JSON lines (also gzipped) with "ground_truth" and, for each model, {"is_correct",
"solution"}. Exit 1 where any score differs from the file's own flag, 2 for a file of another shape.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.checks.tasks.answers import find_answer, same_number
from harness.errors import Mark, SourceError, UsageError
from harness.verdict.gates import paired_p, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One model. `unparsable` answers hold no number; `differing` lists lines scored otherwise than flagged."""

    model: str
    n: int
    correct: int
    share: float
    low: float
    high: float
    unparsable: int
    differing: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """`lost` questions only `first` has right, `gained` only `second`. `worse_p` is the one-sided p-value of
    `second` being worse than `first`, `p` the two-sided one."""

    first: str
    second: str
    lost: int
    gained: int
    worse_p: float
    p: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Score published GSM8K answers and compare the models pair by pair.",
        epilog="example: python tools/score_solutions.py example_model_solutions.jsonl --json",
    )
    parser.add_argument("file", type=Path, help="JSON lines, plain or .gz")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(argv)
    try:
        answers = read_answers(options.file)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    scores = [score(model, lines) for model, lines in answers.items()]
    pairs = [compare(*two) for two in itertools.combinations(answers.items(), 2)]
    if options.json:
        print(
            json.dumps({"scores": [asdict(s) for s in scores], "pairs": [asdict(p) for p in pairs]}, indent=2)
        )
    else:
        print("\n".join([*table(scores), "", *pair_table(pairs)]))
    return 1 if any(s.differing for s in scores) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One question as one model answered it."""

    found: str | None
    right: bool
    flagged: bool


def read_answers(path: Path) -> dict[str, list[Answered]]:
    """The answers of each model, in the file's order. Raises UsageError for what cannot be read."""
    opened = gzip.open if path.suffix == ".gz" else open
    answers: dict[str, list[Answered]] = {}
    number = 0
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    for model, answered in _answered(json.loads(line)).items():
                        answers.setdefault(model, []).append(answered)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise SourceError(
                        Mark(path, number, 1), f"no line of solutions ({error!r}): {line:.80}"
                    ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(f"{path} cannot be read: {why}") from error
    if number == 0:
        raise UsageError(f"{path} is empty; allowed: JSON lines of solutions")
    if not answers or any(len(lines) != number for lines in answers.values()):
        raise UsageError(f"{path}: every line must hold an answer of every model")
    return answers


def _answered(body: Mapping[str, Any]) -> dict[str, Answered]:
    expected = find_answer(body["ground_truth"])
    if expected is None:
        raise ValueError("the ground truth holds no number")
    models = {name: value for name, value in body.items() if isinstance(value, dict)}
    answers = {}
    for model, value in models.items():
        found = find_answer(value["solution"])
        right = found is not None and same_number(found, expected)
        answers[model] = Answered(found=found, right=right, flagged=bool(value["is_correct"]))
    return answers


def score(model: str, lines: Sequence[Answered]) -> Score:
    n, correct = len(lines), sum(line.right for line in lines)
    interval = wilson(correct, n)
    return Score(
        model=model,
        n=n,
        correct=correct,
        share=correct / n,
        low=interval.low,
        high=interval.high,
        unparsable=sum(line.found is None for line in lines),
        differing=[number for number, line in enumerate(lines, start=1) if line.right != line.flagged],
    )


def compare(first: tuple[str, list[Answered]], second: tuple[str, list[Answered]]) -> Pair:
    both = list(zip(first[1], second[1], strict=True))
    lost = sum(one.right and not other.right for one, other in both)
    gained = sum(other.right and not one.right for one, other in both)
    worse, better = paired_p(lost, gained), paired_p(gained, lost)
    return Pair(
        first=first[0],
        second=second[0],
        lost=lost,
        gained=gained,
        worse_p=worse,
        p=min(1.0, 2.0 * min(worse, better)),
    )


def table(scores: Sequence[Score]) -> list[str]:
    head = f"{'model':20} {'n':>5} {'right':>6} {'share':>7}  {'95 % Wilson':17} {'no number':>9}  flags of the file"
    return [head, *map(_score_line, scores)]


def _score_line(s: Score) -> str:
    flags = "all equal" if not s.differing else f"{len(s.differing)} differ, first on line {s.differing[0]}"
    interval = f"[{s.low:.4f}, {s.high:.4f}]"
    return f"{s.model:20} {s.n:>5} {s.correct:>6} {s.share:>7.4f}  {interval:17} {s.unparsable:>9}  {flags}"


def pair_table(pairs: Sequence[Pair]) -> list[str]:
    head = (
        f"{'first':20} {'second':20} {'lost':>5} {'gained':>6} {'p, second worse':>16} {'p, two-sided':>13}"
    )
    rows = [
        f"{p.first:20} {p.second:20} {p.lost:>5} {p.gained:>6} {p.worse_p:>16.4g} {p.p:>13.4g}" for p in pairs
    ]
    return [head, *rows]


if __name__ == "__main__":
    sys.exit(main())
