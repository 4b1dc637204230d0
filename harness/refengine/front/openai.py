"""The OpenAI interface, `/v1/completions` and `/v1/chat/completions`: requests, answers, chunks. No I/O.

These models know no chat format, so a conversation becomes plain text: one `role: content` line for each
message, and the start of the assistant's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from harness.errors import UsageError
from harness.refengine.front.bootstrap import BootstrapFields
from harness.refengine.front.call import Generation, Prompt
from harness.refengine.front.fields import (
    DEFAULT_MAX_NEW_TOKENS,
    DEFAULT_TEMPERATURE,
    NonEmpty,
    PositiveInt,
    Stops,
    Strict,
    Temperature,
    TokenIds,
    TopLogprobs,
    make_prompt,
    neutral,
    tokens_of,
)
from harness.refengine.front.native import finite
from harness.refengine.requests import Scored
from harness.refengine.tokenizer import BOS_ID, Tokenizer

# OpenAI's own default for completions; chat has none, and takes SGLang's.
DEFAULT_COMPLETION_TOKENS = 16


class StreamOptions(Strict):
    include_usage: bool = False


class OpenAIBody(BootstrapFields):
    """Fields of both endpoints. `ignore_eos`, `rid` and the bootstrap fields are SGLang's additions."""

    model: str = ""
    temperature: Temperature | None = None
    seed: int | None = None
    stop: Stops = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    ignore_eos: bool = False
    rid: NonEmpty | None = None
    n: Annotated[int, neutral(1)] = 1
    top_p: Annotated[float, neutral(1.0)] = 1.0
    frequency_penalty: Annotated[float, neutral(0.0)] = 0.0
    presence_penalty: Annotated[float, neutral(0.0)] = 0.0

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def _prompt(
        self, tokens: tuple[int, ...], *, rid: str | None, limit: int, logprobs: bool, top: int
    ) -> Prompt:
        return make_prompt(
            tokens,
            rid=rid,
            max_new_tokens=limit,
            temperature=DEFAULT_TEMPERATURE if self.temperature is None else self.temperature,
            seed=self.seed,
            ignore_eos=self.ignore_eos,
            stop=self.stop,
            return_logprob=logprobs,
            top_logprobs=top,
        )


class CompletionBody(OpenAIBody):
    """`prompt` is a text, several, token ids, or several lists of them."""

    prompt: str | list[str] | TokenIds | list[TokenIds]
    max_tokens: PositiveInt | None = None
    logprobs: TopLogprobs | None = None
    echo: Annotated[bool, neutral(False)] = False
    best_of: Annotated[int, neutral(1)] = 1

    def prompts(self, tokenizer: Tokenizer) -> list[Prompt]:
        """One Prompt for each. Raises UsageError for an empty one or ids outside the vocabulary."""
        given: Any = self.prompt
        if given == []:
            raise UsageError("the prompt is empty; at least one token is needed")
        sources = given if isinstance(given, list) and isinstance(given[0], (str, list)) else [given]
        return [
            self._prompt(
                tokens_of(source, tokenizer),
                rid=self.rid if self.rid is None or len(sources) == 1 else f"{self.rid}_{i}",
                limit=self.max_tokens or DEFAULT_COMPLETION_TOKENS,
                logprobs=self.logprobs is not None,
                top=self.logprobs or 0,
            )
            for i, source in enumerate(sources)
        ]


class TextPart(Strict):
    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = None

    def line(self) -> str:
        parts = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return f"{self.role}: {parts}\n"


class ChatBody(OpenAIBody):
    messages: list[ChatMessage]
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool = False
    top_logprobs: TopLogprobs | None = None

    def prompts(self, tokenizer: Tokenizer) -> list[Prompt]:
        """The conversation as one Prompt. Raises UsageError for one without messages."""
        if not self.messages:
            raise UsageError("messages is empty; at least one is needed")
        text = "".join(message.line() for message in self.messages) + "assistant:"
        prompt = self._prompt(
            tokens_of(text, tokenizer),
            rid=self.rid,
            limit=self.max_completion_tokens or self.max_tokens or DEFAULT_MAX_NEW_TOKENS,
            logprobs=self.logprobs,
            top=(self.top_logprobs or 0) if self.logprobs else 0,
        )
        return [prompt]


class Shape:
    """How one endpoint writes its answers; `chat` is the only difference between the two."""

    def __init__(self, *, chat: bool, model: str, rid: str, tokenizer: Tokenizer) -> None:
        self._chat = chat
        self._tokenizer = tokenizer
        self._head = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{rid}",
            "created": int(time.time()),
            "model": model,
        }

    def answer(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """The whole answer of a call that does not stream."""
        return {
            **self._head,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [self._choice(generation) for generation in generations],
            "usage": usage(generations),
        }

    def chunk(self, generation: Generation, *, shown: int, scored: int) -> dict[str, Any]:
        """What is new since `shown` characters and `scored` tokens of the answer have been sent."""
        text = generation.text.text[shown:]
        choice: dict[str, Any] = {
            "index": generation.index,
            "finish_reason": _finish(generation),
            "logprobs": self._logprobs(generation, since=scored),
        }
        if self._chat:
            role = {"role": "assistant"} if scored == 0 else {}
            choice["delta"] = {**role, "content": text}
        else:
            choice["text"] = text
        return {**self._head, "object": self._chunk_object, "choices": [choice]}

    def usage_chunk(self, generations: Sequence[Generation]) -> dict[str, Any]:
        """The last chunk of a stream that asked for usage."""
        return {**self._head, "object": self._chunk_object, "choices": [], "usage": usage(generations)}

    @property
    def _chunk_object(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _choice(self, generation: Generation) -> dict[str, Any]:
        text = generation.text.text
        said = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {
            "index": generation.index,
            **said,
            "logprobs": self._logprobs(generation),
            "finish_reason": _finish(generation),
        }

    def _logprobs(self, generation: Generation, *, since: int = 0) -> dict[str, Any] | None:
        """Those of the tokens from the `since`th on."""
        if not generation.request.return_logprob:
            return None
        if self._chat:
            return _chat_logprobs(generation.output[since:], self._tokenizer)
        return _completion_logprobs(generation.output, self._tokenizer, since=since)


def usage(generations: Sequence[Generation]) -> dict[str, int]:
    prompt = sum(len(generation.request.tokens) for generation in generations)
    completion = sum(len(generation.output) for generation in generations)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _finish(generation: Generation) -> str | None:
    return None if generation.finish is None else str(generation.finish["type"])


def _completion_logprobs(output: Sequence[Scored], tokenizer: Tokenizer, *, since: int) -> dict[str, Any]:
    offsets = _text_offsets([scored.token for scored in output], tokenizer)[since:]
    output = output[since:]
    return {
        "tokens": [_token_text(scored.token, tokenizer) for scored in output],
        "token_logprobs": [finite(scored.logprob) for scored in output],
        "top_logprobs": [
            {_token_text(token, tokenizer): finite(logprob) for logprob, token in scored.top}
            for scored in output
        ],
        "text_offset": offsets,
    }


def _text_offsets(tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Where in the text each token's own begins; a mark adds none, and stands before the next."""
    decoder, length = tokenizer.stream(), 0
    offsets: list[int] = []
    for token in tokens:
        piece = decoder.push(token)
        length += len(piece)
        # A piece may begin with the U+FFFD of a character that this token broke off; only its end is its own.
        own = 0 if decoder.in_character or not piece else len(tokenizer.decode([token]))
        offsets.append(length - own)
    return offsets


def _chat_logprobs(output: Sequence[Scored], tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "content": [
            {
                **_token_entry(scored.token, scored.logprob, tokenizer),
                "top_logprobs": [_token_entry(token, logprob, tokenizer) for logprob, token in scored.top],
            }
            for scored in output
        ]
    }


def _token_entry(token: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "token": _token_text(token, tokenizer),
        "logprob": finite(logprob),
        "bytes": [token] if token < BOS_ID else list(tokenizer.decode([token]).encode()),
    }


def _token_text(token: int, tokenizer: Tokenizer) -> str:
    """A token alone: a byte that is no character by itself is written as OpenAI does, `bytes:\\xc3`."""
    text = tokenizer.decode([token])
    return f"bytes:\\x{token:02x}" if "\ufffd" in text else text
