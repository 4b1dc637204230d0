"""Recorded baselines: what a fingerprint is made of, when a record may be used, and the file that keeps them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checks.questions import QuestionPlan, make_plan
from harness.checks.reference_file import (
    HEADER,
    baselines_path,
    load_baselines,
    render_baselines,
    with_record,
    write_baselines,
)
from harness.checks.references import (
    Configuration,
    RecordedBaseline,
    configuration,
    explain_difference,
    find,
    may_serve,
    nearest,
    why_none,
)
from harness.errors import EngineError, SourceErrors, UsageError
from harness.suites import AccuracyParams

SHA = "0123456789abcdef" * 4
BASE: dict[str, Any] = {
    "task": "sums",
    "task_digest": SHA,
    "shots": 0,
    "asked": "questions and answers; last number; shots ab",
    "stop": ("Question", "\n\n"),
    "max_new_tokens": 128,
    "model": "builtin:sums-gqa",
    "model_sha256": SHA,
    "formats": {"dtype": "fp32"},
}
TOLD = {"model": "builtin:sums-gqa", "model_sha256": SHA, "dtype": "fp32", "tp_size": 4, "page_size": 16}


def made(**changes: Any) -> Configuration:
    return Configuration(**{**BASE, **changes})


def record(config: Configuration | None = None, **changes: Any) -> RecordedBaseline:
    config = config or made()
    values = {
        "task": config.task,
        "model": config.model,
        "fingerprint": config.fingerprint,
        "runs": 5,
        "questions": 100,
        "correct": 480,
        "of": 495,
        "invalid": 5,
        "flips": 2,
        "compared": 396,
        "commit": "c" * 40,
        "date": "2026-11-29",
        "configuration": config,
    }
    return RecordedBaseline.model_validate({**values, **changes})


# One other value for each part; `formats` lose a fact and gain another.
CHANGES = [
    {"task": "gsm8k"},
    {"task_digest": SHA[::-1]},
    {"shots": 5},
    {"asked": "questions and answers; last number; shots cd"},
    {"stop": ("Question",)},
    {"max_new_tokens": 64},
    {"model": "other"},
    {"model_sha256": None},
    {"formats": {"dtype": "bf16"}},
    {"formats": {"dtype": "fp32", "quantization": "fp8"}},
    {"formats": {}},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_whatever_decides_answers_is_part_of_the_fingerprint(change: dict[str, Any]) -> None:
    assert {next(iter(each)) for each in CHANGES} == set(Configuration.model_fields)
    recorded, other = record(), made(**change)
    assert recorded.fingerprint != other.fingerprint
    assert find([recorded], other) is None
    assert find([record(other), recorded], made()) == recorded


def test_a_fingerprint_is_the_same_in_every_process_and_order_of_formats() -> None:
    one = made(formats={"dtype": "fp32", "quantization": "fp8"})
    other = made(formats={"quantization": "fp8", "dtype": "fp32"})
    assert one.fingerprint == other.fingerprint
    assert made().fingerprint == "93a311c0b512e9b155c59f6c0e84379a1d6fc7119720c483b704020072d0e201"


def plan(*, count: int = 40, **params: Any) -> QuestionPlan:
    return make_plan(AccuracyParams(task="sums", questions=count, **params))


def test_neither_the_layout_nor_how_many_are_asked_is_part_of_it() -> None:
    few = configuration(plan(count=10, shots=3), TOLD)
    many = configuration(
        plan(count=50, shots=3, batch=7, concurrency=2), {**TOLD, "tp_size": 8, "page_size": 64}
    )
    assert few == many


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"shots": 4}, {}),
        ({"max_new_tokens": 7}, {}),
        ({}, {"dtype": "bf16"}),
        ({}, {"kv_cache_dtype": "fp8_e5m2"}),
        ({}, {"quantization": "awq"}),
        ({}, {"model": "builtin:other"}),
        ({}, {"model_sha256": None}),
    ],
    ids=str,
)
def test_how_it_is_asked_and_in_which_numbers_is(params: dict[str, Any], told: dict[str, Any]) -> None:
    assert configuration(plan(shots=3), TOLD) != configuration(
        plan(**{"shots": 3, **params}), {**TOLD, **told}
    )


def test_other_shots_of_the_same_count_are_another_configuration() -> None:
    one = plan(shots=3)
    assert configuration(one, TOLD) != configuration(replace(one, asked=f"{one.asked}0"), TOLD)


def test_a_checkpoint_is_known_by_its_content_and_not_by_its_place() -> None:
    here = configuration(plan(), {**TOLD, "model": "/a/x.safetensors"})
    there = configuration(plan(), {**TOLD, "model": "/b/x.safetensors"})
    assert here == there
    unknown = {**TOLD, "model_sha256": None}
    assert configuration(plan(), {**unknown, "model": "/a/x.safetensors"}) != configuration(
        plan(), {**unknown, "model": "/b/x.safetensors"}
    )


def test_a_model_is_named_by_whoever_knows_it() -> None:
    assert configuration(plan(), {"model_path": "org/model"}).model == "org/model"
    assert configuration(plan(), {"model_path": "/mnt/model"}, model="org/model").model == "org/model"
    with pytest.raises(EngineError, match="names no model"):
        configuration(plan(), {})


def test_the_nearest_record_says_what_differs() -> None:
    far, near = record(made(shots=5, max_new_tokens=64)), record(made(formats={"dtype": "bf16"}))
    other_task = record(made(task="gsm8k"))
    for order in ([far, near, other_task], [other_task, near, far]):
        assert nearest(order, made()) == near
        assert why_none(order, made()) == (
            "no baseline is recorded for this configuration: recorded for dtype bf16, this run has dtype fp32"
        )
    assert why_none([other_task], made()) == "no baseline is recorded for task sums"
    assert explain_difference(made(), made()) == ""
    assert explain_difference(made(), made(shots=5, formats={})) == (
        "recorded for shots 0, this run has shots 5; recorded for dtype fp32, this run has dtype none"
    )


def test_hashes_are_told_by_their_beginning() -> None:
    told = explain_difference(made(), made(model_sha256="f" * 64))
    assert told == f"recorded for model_sha256 {SHA[:12]}, this run has model_sha256 ffffffffffff"


@pytest.mark.parametrize(
    ("changes", "model", "dtype", "expected"),
    [
        ({}, "builtin:sums-gqa", None, True),
        ({}, "builtin:sums-gqa", "fp32", True),
        ({}, "builtin:sums-gqa", "bf16", False),
        ({}, "other", None, False),
        ({"shots": 4}, "builtin:sums-gqa", None, False),
        ({"max_new_tokens": 4}, "builtin:sums-gqa", None, False),
    ],
)
def test_a_suite_uses_a_record_by_what_it_declares(
    changes: dict[str, Any], model: str, dtype: str | None, expected: bool
) -> None:
    recorded = configuration(plan(shots=3), TOLD)
    params = AccuracyParams(task="sums", **{"shots": 3, **changes})
    assert may_serve(recorded, params, model=model, dtype=dtype) is expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"fingerprint": SHA}, "is not that of 'configuration'"),
        ({"fingerprint": "abc"}, "is no SHA-256"),
        ({"model": "other"}, "are not those of 'configuration'"),
        ({"runs": 4, "questions": 125}, "greater than or equal to 5"),
        ({"invalid": 0}, "are not 'runs' times 'questions'"),
        ({"correct": 496}, "more is counted than there was"),
        ({"flips": 397}, "more is counted than there was"),
        ({"flips": 0, "compared": 0}, "greater than or equal to 1"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        record(**changes)


@pytest.mark.parametrize(
    ("commit", "short"),
    [("a" * 40, "a" * 12), ("a" * 40 + "+dirty", "a" * 12 + "+dirty"), ("version 0.10.3", "version 0.10.3")],
)
def test_provenance_names_the_commit_so_that_it_can_be_found(commit: str, short: str) -> None:
    assert record(commit=commit).told == f"480 of 495 in 5 runs, 2026-11-29, commit {short}"


def test_the_file_gives_back_what_was_written_in_one_spelling(tmp_path: Path) -> None:
    records = [record(), record(made(shots=5), note='by "hand"\tü'), record(made(task="gsm8k", formats={}))]
    texts = set()
    for seed in range(5):
        random.Random(seed).shuffle(records)
        write_baselines(tmp_path / "configs" / "baselines.yaml", records)
        texts.add((tmp_path / "configs" / "baselines.yaml").read_text())
    (text,) = texts
    assert text.startswith(HEADER)
    read = load_baselines(tmp_path / "configs" / "baselines.yaml")
    assert sorted(read, key=lambda each: each.fingerprint) == sorted(
        records, key=lambda each: each.fingerprint
    )
    assert render_baselines(read) == text
    assert [each.name for each in (tmp_path / "configs").iterdir()] == ["baselines.yaml"]


def test_no_file_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    file = tmp_path / "baselines.yaml"
    assert load_baselines(file) == ()
    write_baselines(file, [])
    assert load_baselines(file) == ()


def test_a_new_record_takes_the_place_of_its_configuration_only() -> None:
    old, other, new = record(), record(made(shots=5)), record(correct=479)
    assert with_record([old, other], new) == (other, new)


def test_mistakes_in_the_file_are_told_at_their_places(tmp_path: Path) -> None:
    file = tmp_path / "baselines.yaml"
    text = render_baselines([record(), record(made(shots=5))])
    file.write_text(
        text.replace("correct: 480", 'correct: "480"', 1).replace("shots: 5", "shots: -5") + "more: 1\n"
    )
    with pytest.raises(SourceErrors) as caught:
        load_baselines(file)
    lines = file.read_text().splitlines()
    found = {error.field: error.mark for error in caught.value.errors}
    assert {field.rpartition(".")[2] for field in found} == {"correct", "shots", "more"}
    for field, mark in found.items():
        assert field.rpartition(".")[2] in lines[mark.line - 1]


@pytest.mark.parametrize("text", ["[]", "baselines: 7", "baselines: [7]", "other: []", "baselines:"])
def test_a_file_of_another_shape_says_what_is_allowed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "baselines.yaml"
    file.write_text(text)
    with pytest.raises(SourceErrors, match="allowed:"):
        load_baselines(file)


def test_one_configuration_has_one_record(tmp_path: Path) -> None:
    file = tmp_path / "baselines.yaml"
    text = render_baselines([record()])
    file.write_text(text + text[text.index("  - ") :])
    with pytest.raises(SourceErrors, match="a second record of this fingerprint"):
        load_baselines(file)


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "configs").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        write_baselines(tmp_path / "configs" / "baselines.yaml", [record()])


def test_the_file_is_as_given_else_as_named_else_beside_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_BASELINES", raising=False)
    checkout = Path(__file__).resolve().parents[2]
    assert baselines_path() == checkout / "configs" / "baselines.yaml"
    assert baselines_path(catalogue=tmp_path / "suites") == tmp_path / "configs" / "baselines.yaml"
    monkeypatch.setenv("HARNESS_BASELINES", str(tmp_path / "named.yaml"))
    assert baselines_path(catalogue=tmp_path / "suites") == tmp_path / "named.yaml"
    assert baselines_path(tmp_path / "given.yaml") == tmp_path / "given.yaml"
