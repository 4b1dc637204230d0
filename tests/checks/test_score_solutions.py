"""`tools/score_solutions.py` on real answers, against counts and p-values computed another way."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
import scipy.stats

ROOT = Path(__file__).parents[2]
SOLUTIONS = Path(__file__).parent / "data" / "gsm8k_solutions.jsonl.gz"
MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


def tool() -> Any:
    """The script as a module: `tools/` is no package."""
    spec = importlib.util.spec_from_file_location("score_solutions", ROOT / "tools" / "score_solutions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/score_solutions.py", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = run(SOLUTIONS, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def flags() -> dict[str, numpy.ndarray]:
    """The file's own flags, which the tool must not have needed."""
    with gzip.open(SOLUTIONS, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return {model: numpy.array([line[model]["is_correct"] for line in lines]) for model in MODELS}


def test_scores_and_intervals_are_those_of_the_flags(
    told: dict[str, Any], flags: dict[str, numpy.ndarray]
) -> None:
    assert [score["model"] for score in told["scores"]] == list(MODELS)
    for score in told["scores"]:
        right = int(flags[score["model"]].sum())
        interval = scipy.stats.binomtest(right, 1319).proportion_ci(0.95, method="wilson")
        assert (score["n"], score["correct"], score["differing"]) == (1319, right, [])
        assert (score["low"], score["high"]) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert [round(score["share"], 4) for score in told["scores"]] == [0.2168, 0.3904, 0.3472, 0.5625]


def test_pairs_and_p_values_are_those_of_the_flags(
    told: dict[str, Any], flags: dict[str, numpy.ndarray]
) -> None:
    pairs = {(pair["first"], pair["second"]): pair for pair in told["pairs"]}
    assert list(pairs) == list(itertools.combinations(MODELS, 2))
    for (first, second), pair in pairs.items():
        (both, lost), (gained, neither) = scipy.stats.contingency.crosstab(
            ~flags[first], ~flags[second]
        ).count
        assert both + lost + gained + neither == 1319
        assert (pair["lost"], pair["gained"]) == (lost, gained)
        worse = scipy.stats.binomtest(int(lost), int(lost + gained), alternative="greater").pvalue
        either = scipy.stats.binomtest(int(lost), int(lost + gained)).pvalue
        assert pair["worse_p"] == pytest.approx(worse, rel=1e-9)
        assert pair["p"] == pytest.approx(either, rel=1e-9)


def test_the_table_holds_every_model_and_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main([str(SOLUTIONS)]) == 0
    table = capsys.readouterr().out
    assert table.count("all equal") == 4
    assert "175b_finetuning        209    152         0.001575" in table


def line(found: str, flag: bool, model: str = "model") -> str:
    return json.dumps({"ground_truth": "A: 3", model: {"is_correct": flag, "solution": found}}) + "\n"


def test_a_flag_that_differs_is_told_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "solutions.jsonl"
    path.write_text(line("A: 3", True) + line("A: 4", True) + line("no idea", False))
    assert tool().main([str(path)]) == 1
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split()[:4] == ["model", "3", "1", "0.3333"]
    assert rows[1].endswith(" 1  1 differ, first on line 2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line("A: 3", True) + "nonsense\n", "solutions.jsonl:2:1"),
        ('{"ground_truth": "none", "model": {}}\n', "holds no number"),
        ('{"ground_truth": "A: 3", "model": {"solution": "3"}}\n', "is_correct"),
        (line("A: 3", True) + line("A: 3", True, "another"), "every model"),
        ("", "is empty"),
    ],
)
def test_a_file_of_another_shape_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "solutions.jsonl"
    path.write_text(text)
    assert tool().main([str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "solutions.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    assert tool().main([str(path)]) == 2
    assert "solutions.jsonl cannot be read" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl cannot be read: No such file" in capsys.readouterr().err
