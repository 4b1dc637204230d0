"""`harness baseline`: a record is made of what an engine really scored, and of nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Done, assert_usage_error, harness
from fake_completions import FakeCompletions, serving_completions

from harness.checks.questions import QuestionPlan, make_plan
from harness.checks.reference_file import load_baselines
from harness.checks.references import RecordedBaseline
from harness.suites import AccuracyParams

ASKED = ("--task", "sums", "--shots", "0", "--questions", "30")
INFO = {"max_total_num_tokens": 4096, "tp_size": 4, "page_size": 4, "model": "fake/sums-1", "dtype": "bf16"}
SUITE = """\
summary: sums
profiles:
  cpu:
    needs: {cpu: 1}
    estimate: 20s
    timeout: 3m
    engine: {kind: reference, model: fake/sums-1, parallel: {tp: 2, dcp: 2}, args: {dtype: bf16}}
  gpu:
    needs: {gpu: b200, count: 2}
    estimate: 20s
    timeout: 80m
    engine: {kind: sglang, model: fake/sums-1, parallel: {tp: 2, dcp: 2}}
baseline: {parallel: {dcp: 1}}
checks:
  - accuracy: {task: sums, shots: {cpu: 0, gpu: 5}}
"""


@pytest.fixture(scope="module")
def plan() -> QuestionPlan:
    return make_plan(AccuracyParams(task="sums", questions=30, shots=0))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with one scored suite, whose baselines lie beside its catalogue."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "scored.yaml").write_text(SUITE)
    (tmp_path / "suites" / "plain.yaml").write_text(
        "summary: plain\nprofiles: {cpu: {needs: {cpu: 1}, estimate: 5s, timeout: 1m}}\ntests: [test_it.py]\n"
    )
    (tmp_path / "suites" / "test_it.py").write_text("def test_it(): pass\n")
    return tmp_path


def record(script: FakeCompletions, checkout: Path, *args: str) -> Done:
    with serving_completions(script) as url:
        return harness("baseline", "record", "--url", url, *ASKED, "--allow-dirty", *args, cwd=checkout)


def recorded(checkout: Path) -> tuple[RecordedBaseline, ...]:
    return load_baselines(checkout / "configs" / "baselines.yaml")


def test_a_running_engine_is_recorded_listed_and_recorded_anew(checkout, plan):
    script = FakeCompletions.of(plan, wrong=0.3, info=INFO)
    done = record(script, checkout)
    assert done.code == 0, done.told
    (made,) = recorded(checkout)
    assert (made.runs, made.questions, made.of, made.flips) == (5, 30, 150, 0)
    assert 0 < made.correct < 150
    assert (made.task, made.model) == ("sums", "fake/sums-1")
    assert f"{made.correct} of 150 in 5 runs" in done.out
    assert "0 flips of 75" in done.out
    listed = harness("baseline", "list", cwd=checkout)
    assert f"{made.correct} of 150" in listed.out
    assert "scored@cpu" in listed.out
    assert "scored@gpu" not in listed.out  # it has five shots
    assert record(FakeCompletions.of(plan, info=INFO), checkout, "--runs", "6").code == 0
    (again,) = recorded(checkout)
    assert (again.fingerprint, again.runs, again.correct, again.of) == (made.fingerprint, 6, 180, 180)


def test_records_of_several_configurations_stay_side_by_side_and_unused_ones_are_marked(checkout, plan):
    assert record(FakeCompletions.of(plan, info=INFO), checkout).code == 0
    assert record(FakeCompletions.of(plan, info=INFO), checkout, "--model", "as/suites-say").code == 0
    told = json.loads(harness("baseline", "list", "--json", cwd=checkout).out)
    assert told["schema"] == 1
    assert {each["model"]: each["used_by"] for each in told["baselines"]} == {
        "fake/sums-1": ["scored@cpu"],
        "as/suites-say": [],
    }
    assert "no suite" in harness("baseline", "list", cwd=checkout).out


@pytest.mark.parametrize(
    ("faults", "code", "words"),
    [
        ({"refused": 0.2}, 1, ["question ", "cosmic ray", "nothing was recorded"]),
        ({"mute": 1.0}, 1, ["none of 30 answers could be scored"]),
        ({"dies_at": 7}, 1, ["cannot be reached"]),
        ({"info": INFO | {"dcp_size": 2}}, 2, ["runs at dcp 2; a baseline runs at dcp 1"]),
        ({"info": INFO | {"faults": ["lse-base"]}}, 2, ["has lse-base planted"]),
    ],
    ids=str,
)
def test_what_is_no_healthy_baseline_leaves_the_file_as_it_was(checkout, plan, faults, code, words):
    done = record(FakeCompletions.of(plan, **{"info": INFO, **faults}), checkout)
    assert done.code == code, done.told
    assert "Traceback" not in done.told
    assert all(word in done.err for word in words), done.err
    assert recorded(checkout) == ()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["give suites", "--url and --task"]),
        (["scored", "--runs", "4"], ["--runs is 4; allowed: 5 or more"]),
        (["scored", "--url", "http://127.0.0.1:9", "--task", "sums"], ["either suites or --url"]),
        (["scored", "--task", "sums", "--model", "m"], ["--task, --model goes with --url"]),
        (["--url", "http://127.0.0.1:9"], ["--url needs --task: sums or gsm8k"]),
        (["--url", "127.0.0.1:9", "--task", "sums"], ["--url is '127.0.0.1:9'", "http://127.0.0.1:30000"]),
        (
            ["--url", "http://127.0.0.1:9", "--task", "summs"],
            ["--task: 'summs' is unknown", "did you mean 'sums'"],
        ),
        (["--url", "http://127.0.0.1:9", "--task", "sums", "--max-new-tokens", "0"], ["--max-new-tokens: 0"]),
        (["scored", "--questions", "0"], ["--questions: 0 is not allowed here; allowed: 1 or more"]),
        (["scored", "--timeout", "5"], ["--timeout"]),
        (["plain"], ["no accuracy check in plain@cpu"]),
        (["scored", "--profile", "gpu"], ["scored@gpu: this release cannot launch sglang"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage(checkout, args, words):
    assert_usage_error(harness("baseline", "record", *args, "--allow-dirty", cwd=checkout), *words)


def test_a_file_that_cannot_be_read_is_told_before_anything_is_asked(checkout, plan):
    (checkout / "configs").mkdir()
    (checkout / "configs" / "baselines.yaml").write_text("baselines: 7\n")
    script = FakeCompletions.of(plan, info=INFO)
    assert_usage_error(record(script, checkout), "baselines.yaml:1:1", "allowed: one list 'baselines:'")
    assert script.bodies == []
    assert_usage_error(harness("baseline", "list", cwd=checkout), "baselines.yaml:1:1")


def test_nothing_recorded_yet_is_said(checkout):
    done = harness("baseline", "list", cwd=checkout)
    assert done.code == 0
    assert "nothing is recorded in" in done.out


def test_the_engines_of_suites_are_launched_and_one_configuration_is_measured_once(tmp_path):
    """The second suite has the same model in another layout, and no DCP of its own."""
    (tmp_path / "suites").mkdir()
    real = SUITE.replace("fake/sums-1", "builtin:sums-gqa").replace("bf16", "fp32")
    (tmp_path / "suites" / "first.yaml").write_text(real)
    single = real.replace("{tp: 2, dcp: 2}", "{tp: 1}").replace("baseline: {parallel: {dcp: 1}}\n", "")
    (tmp_path / "suites" / "second.yaml").write_text(single)
    done = harness("baseline", "record", "*", "--questions", "8", "--allow-dirty", cwd=tmp_path)
    assert done.code == 0, done.told
    (made,) = recorded(tmp_path)
    assert (made.runs, made.questions, made.flips) == (5, 8, 0)
    assert made.configuration.formats == {"dtype": "fp32"}
    assert made.note == "measured on first@cpu"
    assert "second@cpu: the same configuration as first@cpu" in done.err
    assert "left out first@gpu: this release cannot launch sglang" in done.err
    listed = json.loads(harness("baseline", "list", "--json", cwd=tmp_path).out)
    assert listed["baselines"][0]["used_by"] == ["first@cpu", "second@cpu"]
