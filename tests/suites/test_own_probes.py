"""Questions that a suite writes itself: each mistake in one is told at its place."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from suite_helpers import GOOD, errors_of, load, only_error, text_at

from harness.suites import DecodeSanityParams, OwnProbe, json_schema

SUITE = GOOD.replace("drained: {}", "decode_sanity: {PARAMS}")


def suite_with(params: str) -> str:
    return SUITE.replace("PARAMS", params)


def test_questions_and_expressions_are_read(tmp_path: Path) -> None:
    suite = load(tmp_path, suite_with("probes: bytes, ask: [{prompt: \"7 + 5 =\\n\", expect: '\\b12\\b'}]"))
    (specs,) = suite.points[0].checks.values()
    assert specs[0].params == DecodeSanityParams(
        probes="bytes", ask=(OwnProbe(prompt="7 + 5 =\n", expect=r"\b12\b"),)
    )


@pytest.mark.parametrize(
    ("params", "at", "words"),
    [
        ("ask: [{prompt: a, expect: '(b'}]", "'(b'", "is no regular expression: missing ), unterminated"),
        ("ask: [{prompt: a, expect: 'a{9999999999}'}]", "'a{9", "is no regular expression"),
        ("ask: [{prompt: a, expect: '.*'}]", "'.*'", "matches an empty text too, so it proves nothing"),
        ("ask: [{prompt: a, expect: 391}]", "391", "391 is not allowed here; allowed: text"),
        (
            "ask: [{prompt: a, expect: b, expects: c}]",
            "expects",
            "unknown key 'expects'; did you mean 'expect'?",
        ),
        ("ask: [{prompt: a, expect: b}, {expect: c}]", "{expect: c}", "is missing, and has no default"),
        ("ask: {prompt: a, expect: b}", "{prompt", "allowed: a list"),
        ("probes: sum", "sum", "'sum' is unknown; did you mean 'sums'?"),
        ("printable_share: 1.0", "1.0", "allowed: less than 1"),
        ("repeat_share: 0.0", "0.0", "allowed: more than 0"),
    ],
)
def test_a_mistake_is_told_where_it_is(tmp_path: Path, params: str, at: str, words: str) -> None:
    error = only_error(tmp_path, suite_with(params))
    assert text_at(error).startswith(at)
    assert words in error.message


def test_deep_brackets_are_a_mistake_and_no_crash(tmp_path: Path) -> None:
    deep = "(" * 490 + "a" + ")" * 490
    assert len(errors_of(tmp_path, suite_with(f"ask: [{{prompt: a, expect: '{deep}'}}]"))) <= 1


def test_the_schema_knows_them_too(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    good = "ask: [{prompt: a, expect: b}]"
    assert validator.is_valid(yaml.safe_load(suite_with(good)))
    assert not validator.is_valid(yaml.safe_load(suite_with("ask: [{prompt: a}]")))
    assert not validator.is_valid(yaml.safe_load(suite_with("ask: [{prompt: a, expect: b, x: c}]")))
    based = "extends: y.yaml\n" + suite_with("ask: {cpu: [{prompt: a, expect: b}]}")
    assert validator.is_valid(yaml.safe_load(based))
