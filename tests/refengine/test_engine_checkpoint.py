"""An engine that serves a checkpoint: its texts, ends and log-probabilities, at dcp 2 and dcp 1.

What must come out is computed by the dense model from the same numbers; tokens are spelled here, word by word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_files import WORDS, Arrays, make_random_checkpoint, model_config, random_tensors
from dense_oracle import DenseOracle
from engine_process import RunningEngine, running

from harness.refengine.config import EngineConfig
from harness.refengine.weights import LayerWeights, ModelWeights

CONFIG = model_config(qk_scale=1.0)
# Words, bytes that are no word, characters of two, three and four bytes, and an odd space.
PROMPT = "the apples, and 12 naïve word7 cost 3€ 😀\u00a0####"
BOS, EOS = 256, 257
# Where the answer to PROMPT is made to end: late enough to have words before it.
END = 24


def spelled(token: int) -> bytes:
    return bytes([token]) if token < BOS else b"" if token <= EOS else WORDS[token - 258].encode()


def text_of(tokens: list[int]) -> str:
    return b"".join(map(spelled, tokens)).decode(errors="replace")


def dense(tensors: Arrays) -> DenseOracle:
    exact = {name: torch.from_numpy(array).float() for name, array in tensors.items()}
    layers = tuple(
        LayerWeights(**{n: exact[f"layers.{i}.{n}"] for n in ("qkv", "o_proj", "gate_up", "down_proj")})
        for i in range(CONFIG.num_layers)
    )
    weights = ModelWeights(embedding=exact["embedding"], layers=layers, lm_head=exact["lm_head"])
    return DenseOracle(CONFIG, weights=weights)


def prompt_tokens() -> list[int]:
    """Cut by hand: the longest word at each place, else a byte."""
    tokens, rest = [BOS], PROMPT.encode()
    while rest:
        fits = [word for word in WORDS if rest.startswith(word.encode())]
        word = max(fits, key=len, default=None)
        tokens.append(rest[0] if word is None else 258 + WORDS.index(word))
        rest = rest[1 if word is None else len(word.encode()) :]
    return tokens


@dataclass(frozen=True)
class Expected:
    """The answer to PROMPT, without its end mark: tokens and text; `file` is the checkpoint."""

    file: Path
    tokens: list[int]

    @property
    def text(self) -> str:
        return text_of(self.tokens)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """A model that ends: the token it would say at END or after, for the first time, becomes the end mark."""
    tensors = random_tensors(CONFIG)
    answer = dense(tensors).greedy(prompt_tokens(), 2 * END)
    end = next(place for place in range(END, 2 * END) if answer[place] not in answer[:place])
    tensors["lm_head"][[EOS, answer[end]]] = tensors["lm_head"][[answer[end], EOS]]
    # Words and bytes, else the tests below test little.
    assert any(token > EOS for token in answer[2:end])
    assert any(token < BOS for token in answer[2:end])
    file = tmp_path_factory.mktemp("model") / "small.safetensors"
    return Expected(make_random_checkpoint(file, config=CONFIG, tensors=tensors), answer[:end])


def launched(expected: Expected, directory: Path, **topology: int) -> Any:
    return running(EngineConfig(model=str(expected.file), page_size=4, **topology), directory=directory)


@pytest.fixture(scope="module")
def engine(expected: Expected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with launched(expected, tmp_path_factory.mktemp("engine"), tp=2, dcp=2) as engine:
        yield engine


def complete(engine: RunningEngine, **body: Any) -> Any:
    given = {"prompt": PROMPT, "max_tokens": 200, "temperature": 0, **body}
    response = engine.http.post("/v1/completions", json=given)
    assert response.status_code == 200, response.text
    return response.json()


def stop_in_a_word(expected: Expected) -> str:
    """A text that begins in the token before a word and ends in the middle of that word."""
    for place, token in enumerate(expected.tokens):
        before = text_of(expected.tokens[:place])
        if place > 2 and token > EOS and len(WORDS[token - 258]) > 3 and before[-1] != "\ufffd":
            return before[-1] + WORDS[token - 258][:2]
    raise AssertionError("the model says no word")


def test_the_proof_names_the_file_by_its_hash(engine: RunningEngine, expected: Expected) -> None:
    info = engine.info()
    assert info["model"] == str(expected.file)
    assert info["model_sha256"] == hashlib.sha256(expected.file.read_bytes()).hexdigest()


def test_an_answer_ends_with_the_end_mark_which_is_no_text(engine: RunningEngine, expected: Expected) -> None:
    found = complete(engine)
    (choice,) = found["choices"]
    assert (choice["text"], choice["finish_reason"]) == (expected.text, "stop")
    assert found["usage"]["prompt_tokens"] == len(prompt_tokens())
    assert found["usage"]["completion_tokens"] == len(expected.tokens) + 1


def test_the_limit_gives_length(engine: RunningEngine, expected: Expected) -> None:
    (choice,) = complete(engine, max_tokens=9)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text_of(expected.tokens[:9]), "length")
    (choice,) = complete(engine, max_tokens=len(expected.tokens) + 2, ignore_eos=True)["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["text"].startswith(expected.text)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_cuts_inside_a_word(stream: bool, engine: RunningEngine, expected: Expected) -> None:
    stop = stop_in_a_word(expected)
    cut = expected.text[: expected.text.index(stop)]
    body = {"prompt": PROMPT, "max_tokens": 200, "temperature": 0, "stop": ["never said", stop]}
    if not stream:
        choices = complete(engine, **body)["choices"]
    else:
        with engine.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert "".join(choice["text"] for choice in choices) == cut
    assert choices[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("prompt", [PROMPT, prompt_tokens()])
def test_generate_takes_text_and_the_tokens_of_it(
    prompt: Any, engine: RunningEngine, expected: Expected
) -> None:
    found = engine.generate(prompt, max_new_tokens=200, ignore_eos=False)
    assert found["text"] == expected.text
    assert found["output_ids"] == [*expected.tokens, EOS]
    assert found["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS}
    assert found["meta_info"]["prompt_tokens"] == len(prompt_tokens())


def test_a_chat_is_a_completion_of_its_lines(engine: RunningEngine) -> None:
    plain = complete(engine, prompt="user: the apples\nassistant:", max_tokens=30)
    messages = [{"role": "user", "content": "the apples"}]
    body = {"messages": messages, "max_tokens": 30, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    found = engine.http.post("/v1/chat/completions", json=body).json()
    (choice,) = found["choices"]
    assert choice["message"]["content"] == plain["choices"][0]["text"]
    assert choice["finish_reason"] == plain["choices"][0]["finish_reason"]
    content = choice["logprobs"]["content"]
    joined = b"".join(bytes(entry["bytes"]) for entry in content)
    assert joined.decode(errors="replace") == choice["message"]["content"]
    assert any(len(entry["bytes"]) > 1 for entry in content)


def test_log_probabilities_come_with_words_and_their_places(
    engine: RunningEngine, expected: Expected
) -> None:
    (choice,) = complete(engine, logprobs=1, max_tokens=len(expected.tokens))["choices"]
    told, text = choice["logprobs"], choice["text"]
    assert len(told["tokens"]) == len(expected.tokens)
    words = [place for place, token in enumerate(expected.tokens) if token > EOS]
    for place in words:
        word, offset = WORDS[expected.tokens[place] - 258], told["text_offset"][place]
        assert told["tokens"][place] == word
        assert text[offset : offset + len(word)] == word
    assert told["text_offset"] == sorted(told["text_offset"])


def test_ids_beyond_the_words_are_refused(engine: RunningEngine) -> None:
    assert complete(engine, prompt=[BOS, CONFIG.vocab_size - 1], max_tokens=1)
    response = engine.http.post("/generate", json={"input_ids": [BOS, CONFIG.vocab_size]})
    assert response.status_code == 400
    assert f"token {CONFIG.vocab_size} at place 1 is not in the vocabulary" in response.text


def test_dcp_1_answers_the_same(engine: RunningEngine, expected: Expected, tmp_path: Path) -> None:
    prompts = [PROMPT, "word1 word2", "€", "the apple" * 30]
    with launched(expected, tmp_path, tp=2, dcp=1) as other:
        for prompt in prompts:
            ours, base = (
                one.generate(prompt, max_new_tokens=40, ignore_eos=False) for one in (engine, other)
            )
            assert (ours["text"], ours["output_ids"]) == (base["text"], base["output_ids"])
            ours_logprobs, base_logprobs = (
                [entry[0] for entry in one["meta_info"]["output_token_logprobs"]] for one in (ours, base)
            )
            assert ours_logprobs == pytest.approx(base_logprobs, abs=1e-4)
        assert other.info()["model_sha256"] == engine.info()["model_sha256"]


def test_the_model_that_harness_brings_works_out_its_answer(tmp_path: Path) -> None:
    """On paper: 41 books and 8 on each of 2 days. Candles and pens are there to be overlooked."""
    question = (
        "Ben also has 66 candles. Ben has 41 books. Carla has 90 pens. For 2 days, Ben gets 8 books a day."
    )
    prompt = f"Question: {question} How many books are left for Ben?\nAnswer:"
    with running(EngineConfig(model="builtin:sums-gqa", tp=2, dcp=2), directory=tmp_path) as engine:
        (choice,) = complete(engine, prompt=prompt)["choices"]
        assert (choice["text"].split()[-2:], choice["finish_reason"]) == (["####", "57"], "stop")
        (choice,) = complete(engine, prompt=prompt, stop=["####"])["choices"]
        assert choice["text"].endswith("\n")
        assert len(engine.info()["model_sha256"]) == 64
