"""`decode_sanity` sees each kind of nonsense, says what a model cannot show, and quotes whatever was said."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from fake_engine import FakeEngine

from harness.checks import CheckContext, CheckResult, decode_sanity
from harness.checks.probes import PROBES, probe_set_of
from harness.engines import Completion, EngineClient, ServerInfo
from harness.engines.wire import parse_server_info
from harness.errors import DeadlineError, EngineDiedError, EngineError, HarnessError, RequestRefusedError
from harness.suites import DecodeSanityParams


def judge(engine: FakeEngine, **params: Any) -> CheckResult:
    context = CheckContext(client=cast(EngineClient, engine), baseline=None)
    return decode_sanity.run(DecodeSanityParams.model_validate(params), context)


def judge_fault(*faults: str, **params: Any) -> CheckResult:
    return judge(FakeEngine(faults=frozenset(faults)), **params)


def test_a_pass_tells_all_that_was_judged() -> None:
    result = judge(FakeEngine())
    assert result.message == (
        "5 questions (probes chat for model 'a/chat-model'): 3 of 3 answers right, printable share 1.00 or more, "
        "repeated share 0.04 or less, 3 the same twice, one token answered, finish reasons right, "
        "a stop string stops"
    )
    assert result.figures["not_judged"] == {}
    assert result.figures["answers"][1]["answer"] == "' 391'"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            "wrong-content",
            "17 x 23? Give only the number.\\nAnswer:' was answered ' 401', expected '\\\\b391\\\\b'",
        ),
        ("empty-answer", "'Write one sentence about a sunny day in a park.' was answered ''"),
        ("not-printable", "of ' Die Sonne schien \\u2600\\x1b[31m"),
        ("not-printable", "is printable ASCII, more than 0.85 is healthy"),
        ("loops", "0.25 of ' the the the the"),
        ("loops", "repeats one piece of 5 characters, less than 0.25 is healthy"),
        ("unsteady", "was answered 'Yellow.' and, asked again, 'Yellow!'"),
        ("silent", "was answered '', expected '(?i)paris'"),
        ("silent-at-one", "asked for one token, was answered with nothing"),
        (
            "refuses-one-token",
            "asked for 1 tokens, was not answered: /v1/completions: status 500: captured graph",
        ),
        ("always-stop", "was answered with ' Paris.' and finish reason 'stop', though ' Paris.\\nQuestion"),
        ("always-length", "finish reason 'length' after 1 of 64 tokens"),
        ("always-length", "stopped at 's', was answered with finish reason 'length' instead of 'stop'"),
        ("aborts", "finish reason 'abort'; there are stop and length"),
        ("overlong", "65 tokens, asked for at most 64"),
        ("overlong", "asked for one token, was answered with 2 tokens, asked for at most 1"),
        ("lost-later", "was not answered: /v1/completions: status 404: Not Found"),
        ("aborts-later", "finish reason 'abort'"),
        ("ignores-stop", "stopped at 's', was answered with ' Paris."),
    ],
)
def test_every_rule_is_loud(fault: str, words: str) -> None:
    result = judge_fault(fault)
    assert result.outcome == "failed", result.message
    assert words in " | ".join(result.figures["faults"])
    assert result.message.isprintable() or "…" in result.message


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("wrong-content", {"probes": "bytes"}),
        ("not-printable", {"printable_share": 0.1}),
        ("loops", {"repeat_share": 0.3}),
        ("counts-no-tokens", {}),
        ("one-word", {}),
    ],
)
def test_bounds_and_probes_are_the_suites_to_choose(fault: str, rule: dict[str, Any]) -> None:
    result = judge_fault(fault, **rule)
    assert result.outcome == "passed", result.message


def test_the_sums_model_must_end_its_story_and_no_drill() -> None:
    healthy = judge(FakeEngine(model="builtin:sums-gqa"))
    assert healthy.outcome == "passed", healthy.message
    assert [answer["tokens"] for answer in healthy.figures["answers"]] == [4, 4, 4, 4, 17]
    short = judge(FakeEngine(model="builtin:sums-gqa"), max_new_tokens=2)
    assert short.outcome == "failed"
    assert {answer["tokens"] for answer in short.figures["answers"]} == {2}
    endless = judge_fault("never-ends", probes="sums")
    assert "which the model did not end within 64 tokens" in " | ".join(endless.figures["faults"])


def test_what_the_suite_calls_the_model_comes_first() -> None:
    client = cast(EngineClient, FakeEngine(model="a/chat-model"))
    context = CheckContext(client=client, baseline=None, model="builtin:random-gqa")
    result = decode_sanity.run(DecodeSanityParams(), context)
    assert "probes bytes for model 'builtin:random-gqa'" in result.message


def test_an_answer_that_drifts_is_one_finding_and_nothing_to_stop() -> None:
    result = judge_fault("drifts", probes="bytes")
    assert result.outcome == "failed"
    assert len(result.figures["faults"]) == 2
    assert all("asked again" in fault for fault in result.figures["faults"])
    assert "stop string" in result.figures["not_judged"]


def test_a_mark_without_text_is_a_token_of_noise_and_no_answer_of_text() -> None:
    assert judge_fault("mark-first", probes="bytes").outcome == "passed"
    assert "asked for one token, was answered with nothing" in judge_fault("mark-first").message


def test_one_fault_is_one_sentence_and_many_are_counted() -> None:
    assert len(judge_fault("loops").figures["faults"]) == 1
    result = judge_fault("aborts")
    assert f"; and {len(result.figures['faults']) - 4} more (probes chat" in result.message


@pytest.mark.parametrize(
    ("model", "probes"),
    [
        ("builtin:sums-gqa", "sums"),
        ("builtin:random-gqa-kv1", "bytes"),
        ("Qwen/Qwen3.5-397B-A17B-FP8", "chat"),
        ("/models/builtin:random-gqa", "chat"),
        ("", "chat"),
    ],
)
def test_the_model_decides_what_it_is_asked(model: str, probes: str) -> None:
    assert probe_set_of(model) == probes
    assert judge(FakeEngine(model=model)).figures["probes"] == probes
    assert judge(FakeEngine(model=model), probes="bytes").figures["probes"] == "bytes"


@pytest.mark.parametrize(
    ("told", "model"),
    [({"model": "builtin:sums-gqa"}, "builtin:sums-gqa"), ({"model_path": "b"}, "b"), ({}, "")],
)
def test_each_engine_has_its_word_for_the_loaded_model(told: dict[str, str], model: str) -> None:
    facts = {"max_total_num_tokens": 64, "tp_size": 4, "page_size": 16}
    assert parse_server_info({**facts, **told}).model == model


def test_an_engine_without_server_info_is_asked_like_a_chat_model() -> None:
    class WithoutInfo(FakeEngine):
        def server_info(self) -> ServerInfo:
            raise RequestRefusedError("/server_info: status 404", status=404)

    result = judge(WithoutInfo())
    assert result.outcome == "passed"
    assert "(probes chat for a model without a name)" in result.message


def test_random_weights_show_only_what_they_can() -> None:
    result = judge(FakeEngine(model="builtin:random-gqa"))
    assert result.outcome == "passed"
    assert set(result.figures["not_judged"]) == {"content", "printable share", "repetition"}
    assert "not judged: content (random weights write noise), printable share (" in result.message
    for fault in ("unsteady", "always-length", "aborts", "overlong", "ignores-stop", "silent-at-one"):
        assert judge_fault(fault, probes="bytes").outcome == "failed", fault


@pytest.mark.parametrize(
    ("faults", "params", "why"),
    [
        (("no-completions",), {}, "continues no text, so that it talks sense cannot be proven"),
        (("silent",), {"probes": "bytes"}, "2 questions proved nothing"),
    ],
)
def test_what_proves_nothing_is_unproven(faults: tuple[str, ...], params: dict[str, Any], why: str) -> None:
    result = judge_fault(*faults, **params)
    assert result.outcome == "unproven"
    assert why in result.message


def test_own_questions_come_on_top_and_are_judged_like_the_others() -> None:
    own = {"prompt": "Name a mountain in the park.", "expect": "children"}
    result = judge(FakeEngine(), probes="bytes", ask=[own])
    assert result.outcome == "passed"
    assert "3 questions" in result.message
    assert "1 of 1 answers right" in result.message
    result = judge(FakeEngine(), probes="bytes", ask=[{**own, "expect": "Everest"}])
    assert "'Name a mountain in the park.' was answered ' The sun shone" in result.message
    assert "expected 'Everest'" in result.message


@pytest.mark.parametrize("error", [EngineDiedError("rank 2 was killed"), DeadlineError("check", 3)])
def test_a_dead_or_silent_engine_is_no_finding_of_this_check(error: HarnessError) -> None:
    class Dying(FakeEngine):
        def complete(self, prompt: str, **_: Any) -> Completion:
            raise error

    with pytest.raises(type(error)):
        judge(Dying())


def test_an_answer_without_its_parts_is_a_finding() -> None:
    class Broken(FakeEngine):
        def complete(self, prompt: str, **_: Any) -> Completion:
            raise EngineError("/v1/completions answered without what was asked for: KeyError('choices')")

    result = judge(Broken())
    assert result.outcome == "failed"
    assert "was not answered: /v1/completions answered without what was asked for" in result.message
    assert result.figures["not_judged"]["content"] == "nothing was answered"


def test_whatever_bytes_come_nothing_breaks() -> None:
    noise = "".join(map(chr, range(0x100))) + "\ud800\u202e\u2028\ufffd"

    class Noisy(FakeEngine):
        def complete(self, prompt: str, **_: Any) -> Completion:
            return Completion(text=noise, tokens=64, finish_reason="\x1b[2J", prompt_tokens=1)

    result = judge(Noisy())
    assert result.outcome == "failed"
    assert "\x1b" not in result.message
    assert set(result.message) - set(map(chr, range(32, 127))) <= {"…"}
    assert json.loads(json.dumps(result.figures)) == result.figures
    assert result.figures["answers"][0]["finish_reason"] == r"'\x1b[2J'"


def test_every_probe_of_text_can_be_graded_or_measured() -> None:
    for probe in (probe for probes in PROBES.values() for probe in probes):
        assert probe.expect or not probe.text or probe.repeat.value == "none"
