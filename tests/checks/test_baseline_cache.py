"""The cache of dcp=1 answers: what comes back is what was kept, and only for the very same engine and questions."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.asks import Answers, Ask, QuestionAsk, RequestGroup, complete, decode, digest, encode
from harness.checks.baseline_cache import BaselineCache
from harness.checks.questions import PlannedQuestion, QuestionPlan
from harness.engines import Answer, GenerateRequest, LaunchSpec, ServerInfo
from harness.topology import ParallelConfig
from harness.verdict import QuestionOutcome, QuestionRecord

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LAUNCH = LaunchSpec(kind="reference", model="builtin:x", parallel=ParallelConfig(tp_size=4, dcp_size=1))
GROUP: RequestGroup = (GenerateRequest(input_ids=(1, 2), max_new_tokens=2),)
ANSWERS = (
    Answer(
        tokens=(3, 4),
        logprobs=(-0.1, -1.25e-7),
        prompt_logprobs=(-0.3,),
        finish_reason="length",
        prompt_tokens=2,
    ),
)
PLAN = QuestionPlan(
    task="sums",
    label="sums",
    digest="0" * 64,
    asked="",
    items=(PlannedQuestion(number=7, prompt="Q", expected="1", prompt_hash="a" * 16),),
    shots=0,
    max_new_tokens=8,
    stop=(),
    batch=4,
    concurrency=4,
)
RUNS = ((QuestionRecord(question=7, prompt_hash="a" * 16, outcome=QuestionOutcome.CORRECT, expected="1"),),)


def info() -> ServerInfo:
    """As an engine tells it: `raw` is what is kept."""
    raw: dict[str, Any] = {"max_total_num_tokens": 64, "tp_size": 4, "page_size": 4}
    return replace(FakeEngine(dcp=1).server_info(), raw=raw)


def cache(folder: Path, **facts: Any) -> BaselineCache:
    return BaselineCache(**{"folder": folder, "engine_sha": COMMIT, "machine": "x86_64", **facts})


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    ask = QuestionAsk(plan=PLAN)
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS, ask: RUNS})
    found = cache(tmp_path).find(LAUNCH, [GROUP, ask])
    assert found is not None
    assert found.answers == {GROUP: ANSWERS, ask: RUNS}
    assert found.info.max_total_num_tokens == 64


OTHER_LAUNCHES = [
    replace(LAUNCH, model="builtin:y"),
    replace(LAUNCH, args={"dtype": "bf16"}),
    replace(LAUNCH, parallel=ParallelConfig(tp_size=8, dcp_size=1)),
    replace(LAUNCH, env={"A": "1"}),
    replace(LAUNCH, faults=("lse-base",)),
]


@pytest.mark.parametrize("launch", OTHER_LAUNCHES)
def test_another_launch_finds_nothing(launch: LaunchSpec, tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    assert cache(tmp_path).find(launch, [GROUP]) is None


def test_patience_is_no_part_of_an_engine(tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    assert cache(tmp_path).find(replace(LAUNCH, launch_timeout_s=1.0), [GROUP]) is not None


@pytest.mark.parametrize("facts", [{"engine_sha": COMMIT[::-1]}, {"machine": "h200"}, {"env": {"A": "1"}}])
def test_another_engine_or_machine_finds_nothing(facts: dict[str, str], tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    assert cache(tmp_path, **facts).find(LAUNCH, [GROUP]) is None


def test_a_checkpoint_is_what_it_holds_and_not_its_path(tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    model.write_bytes(b"one")
    launch = replace(LAUNCH, model=str(model))
    cache(tmp_path / "cache").keep(launch, info(), {GROUP: ANSWERS})
    assert cache(tmp_path / "cache").find(launch, [GROUP]) is not None
    model.write_bytes(b"two")
    assert cache(tmp_path / "cache").find(launch, [GROUP]) is None


@pytest.mark.parametrize("sha", [None, f"{COMMIT}+dirty", "version 1.0", ""])
def test_an_engine_without_a_clean_commit_is_never_kept(sha: str | None, tmp_path: Path) -> None:
    cache(tmp_path, engine_sha=sha).keep(LAUNCH, info(), {GROUP: ANSWERS})
    assert list(tmp_path.iterdir()) == []
    assert cache(tmp_path, engine_sha=sha).find(LAUNCH, [GROUP]) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"info": {}, "answers": []}', "null", "\x00"])
def test_a_broken_file_is_as_good_as_none(text: str, tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    (file,) = tmp_path.glob("*.json")
    file.write_text(text)
    assert cache(tmp_path).find(LAUNCH, [GROUP]) is None


def test_a_file_with_fewer_answers_is_as_good_as_none(tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {QuestionAsk(plan=PLAN): RUNS})
    (file,) = tmp_path.glob("*.json")
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, "answers": [[]]}))
    assert cache(tmp_path).find(LAUNCH, [QuestionAsk(plan=PLAN)]) is None


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here = cache(tmp_path / "file")
    here.keep(LAUNCH, info(), {GROUP: ANSWERS})
    assert here.find(LAUNCH, [GROUP]) is None


ASKS: list[Ask] = [
    GROUP,
    (replace(GROUP[0], max_new_tokens=3),),
    (replace(GROUP[0], temperature=0.5),),
    (*GROUP, *GROUP),
    (),
    QuestionAsk(plan=PLAN),
    QuestionAsk(plan=PLAN, runs=2),
    QuestionAsk(plan=replace(PLAN, max_new_tokens=9)),
    QuestionAsk(plan=replace(PLAN, batch=5)),
    QuestionAsk(plan=replace(PLAN, stop=("x",))),
    QuestionAsk(plan=replace(PLAN, items=(replace(PLAN.items[0], prompt="R"),))),
]


def test_no_two_asks_share_a_digest() -> None:
    assert len({digest(ask) for ask in ASKS}) == len(ASKS)


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 10**6), finite), min_size=1, max_size=5), st.text(max_size=20))
def test_answers_survive_the_way_through_json(tokens: list[tuple[int, float]], text: str) -> None:
    answer = Answer(
        tokens=tuple(token for token, _ in tokens),
        logprobs=tuple(logprob for _, logprob in tokens),
        prompt_logprobs=(),
        finish_reason=text,
        prompt_tokens=1,
    )
    record = replace(RUNS[0][0], text=text, answer=None)
    for ask, answers in ((GROUP, (answer,)), (QuestionAsk(plan=PLAN), ((record,),))):
        kept: Answers = answers  # type: ignore[assignment]
        assert decode(ask, json.loads(json.dumps(encode(kept)))) == kept


def test_answers_with_a_failed_request_are_not_worth_keeping() -> None:
    failed = replace(RUNS[0][0], outcome=QuestionOutcome.ERROR)
    assert complete(RUNS)
    assert complete(ANSWERS)
    assert not complete(((failed,),))


def test_a_checkpoint_that_was_replaced_while_it_answered_is_not_kept(tmp_path: Path) -> None:
    """The old model's answers must not be found for the new one."""
    model = tmp_path / "m.safetensors"
    model.write_bytes(b"new")
    told = replace(info(), raw={**info().raw, "model_sha256": hashlib.sha256(b"old").hexdigest()})
    launch = replace(LAUNCH, model=str(model))
    cache(tmp_path / "cache").keep(launch, told, {GROUP: ANSWERS})
    assert cache(tmp_path / "cache").find(launch, [GROUP]) is None
    told.raw["model_sha256"] = hashlib.sha256(b"new").hexdigest()
    for one in (launch, LAUNCH):  # a builtin model is part of the engine's commit, and no file of ours
        cache(tmp_path / "cache").keep(one, told, {GROUP: ANSWERS})
        assert cache(tmp_path / "cache").find(one, [GROUP]) is not None


@pytest.mark.parametrize("answers", [[7], ["x"], [None], [[]], {"a": 1}, 7, None])
def test_answers_of_another_shape_are_as_good_as_none(answers: Any, tmp_path: Path) -> None:
    for ask in (GROUP, QuestionAsk(plan=PLAN)):
        cache(tmp_path).keep(LAUNCH, info(), {ask: ANSWERS if ask is GROUP else RUNS})
        for file in tmp_path.glob("*.json"):
            file.write_text(json.dumps({**json.loads(file.read_text()), "answers": answers}))
        assert cache(tmp_path).find(LAUNCH, [ask]) is None


@pytest.mark.parametrize("told", [[], "x", 7, None])
def test_an_info_of_another_shape_is_as_good_as_none(told: Any, tmp_path: Path) -> None:
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    (file,) = tmp_path.glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "info": told}))
    assert cache(tmp_path).find(LAUNCH, [GROUP]) is None


def test_another_day_is_the_oldest_of_what_was_found(tmp_path: Path) -> None:
    """A file without a day is found by none of its parts."""
    cache(tmp_path).keep(LAUNCH, info(), {GROUP: ANSWERS})
    (file,) = tmp_path.glob("*.json")
    body = json.loads(file.read_text())
    del body["asked_at"]
    file.write_text(json.dumps(body))
    assert cache(tmp_path).find(LAUNCH, [GROUP]) is None
