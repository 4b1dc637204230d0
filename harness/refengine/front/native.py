"""SGLang's native `/generate`: its request, its answer, its stream of growing answers. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

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
    each,
    make_prompt,
    neutral,
    tokens_of,
)
from harness.refengine.requests import Scored
from harness.refengine.tokenizer import Tokenizer

# -1 asks for none of the prompt's log-probabilities.
LogprobStart = Annotated[int, Field(ge=-1)]


class SamplingParams(Strict):
    """SGLang's sampling parameters as far as they are implemented; the others at their neutral values."""

    max_new_tokens: PositiveInt = DEFAULT_MAX_NEW_TOKENS
    temperature: Temperature = DEFAULT_TEMPERATURE
    sampling_seed: int | None = None
    ignore_eos: bool = False
    stop: Stops = None
    n: Annotated[int, neutral(1)] = 1
    top_p: Annotated[float, neutral(1.0)] = 1.0
    top_k: Annotated[int, neutral(-1)] = -1
    min_p: Annotated[float, neutral(0.0)] = 0.0
    frequency_penalty: Annotated[float, neutral(0.0)] = 0.0
    presence_penalty: Annotated[float, neutral(0.0)] = 0.0
    repetition_penalty: Annotated[float, neutral(1.0)] = 1.0
    min_new_tokens: Annotated[int, neutral(0)] = 0
    skip_special_tokens: Annotated[bool, neutral(True)] = True


class GenerateBody(BootstrapFields):
    """One prompt or several, as text or token ids; parameters are common to all or listed one for each.

    `logprob_start_len` is the first prompt position whose log-probability is wanted; -1 wants none.
    """

    text: str | list[str] | None = None
    input_ids: TokenIds | list[TokenIds] | None = None
    sampling_params: SamplingParams | list[SamplingParams] = Field(default_factory=SamplingParams)
    return_logprob: bool | list[bool] = False
    logprob_start_len: LogprobStart | list[LogprobStart] = -1
    top_logprobs_num: TopLogprobs | list[TopLogprobs] = 0
    stream: bool = False
    rid: NonEmpty | list[NonEmpty] | None = None

    @property
    def is_list(self) -> bool:
        """Whether the answer is a list, which it is for a list of one prompt too."""
        if self.text is not None:
            return isinstance(self.text, list)
        return bool(self.input_ids) and all(isinstance(one, list) for one in self.input_ids or ())

    def prompts(self, tokenizer: Tokenizer) -> list[Prompt]:
        """One Prompt for each. Raises UsageError naming the field that does not fit."""
        sources = self._sources()
        count = len(sources)
        params = each("sampling_params", self.sampling_params, count)
        logprobs = each("return_logprob", self.return_logprob, count)
        starts = each("logprob_start_len", self.logprob_start_len, count)
        tops = each("top_logprobs_num", self.top_logprobs_num, count)
        rids = self._rids(count)
        prompts = [tokens_of(source, tokenizer) for source in sources]
        for tokens, start in zip(prompts, starts, strict=True):
            if start > len(tokens):
                raise UsageError(f"logprob_start_len {start} is past the prompt's {len(tokens)} tokens")
        return [
            make_prompt(
                tokens,
                rid=rids[i],
                max_new_tokens=params[i].max_new_tokens,
                temperature=params[i].temperature,
                seed=params[i].sampling_seed,
                ignore_eos=params[i].ignore_eos,
                stop=params[i].stop,
                return_logprob=logprobs[i],
                top_logprobs=tops[i] if logprobs[i] else 0,
                logprob_start=starts[i] if logprobs[i] and starts[i] >= 0 else None,
            )
            for i, tokens in enumerate(prompts)
        ]

    def _sources(self) -> list[str | list[int]]:
        if (self.text is None) == (self.input_ids is None):
            raise UsageError("give either text or input_ids")
        given: Any = self.text if self.text is not None else self.input_ids
        if not self.is_list:
            return [given]
        if not given:
            raise UsageError("the list of prompts is empty; at least one is needed")
        return list(given)

    def _rids(self, count: int) -> list[str | None]:
        """One rid names one request; several get `rid_0`, `rid_1`, …"""
        if isinstance(self.rid, list):
            listed: Sequence[str] = each("rid", self.rid, count)
            return [*listed]
        if self.rid is None or not self.is_list:
            return [self.rid] * count
        return [f"{self.rid}_{i}" for i in range(count)]


def answer(generation: Generation) -> dict[str, Any]:
    """The answer so far, in SGLang's shape; a stream sends it again with every token, each time longer."""
    request = generation.request
    meta: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": generation.finish,
        "prompt_tokens": len(request.tokens),
        "completion_tokens": len(generation.output),
        "cached_tokens": 0,
    }
    if request.return_logprob:
        start = request.logprob_start if request.logprob_start is not None else len(request.tokens)
        prompt = generation.prompt[start:]
        meta["input_token_logprobs"] = [_entry(scored) for scored in prompt]
        meta["output_token_logprobs"] = [_entry(scored) for scored in generation.output]
        if request.top_logprobs:
            meta["input_top_logprobs"] = [_top_entries(scored) for scored in prompt]
            meta["output_top_logprobs"] = [_top_entries(scored) for scored in generation.output]
    return {"text": generation.text.text, "output_ids": generation.output_ids, "meta_info": meta}


def stream_event(generation: Generation, *, is_list: bool) -> dict[str, Any]:
    """One event of a stream; `index` tells the prompts of a list apart."""
    return {**answer(generation), "index": generation.index} if is_list else answer(generation)


def finite(number: float | None) -> float | None:
    """JSON has no NaN and no infinity: a model that computes them answers null."""
    return number if number is not None and math.isfinite(number) else None


def _entry(scored: Scored) -> list[Any]:
    return [finite(scored.logprob), scored.token, None]


def _top_entries(scored: Scored) -> list[list[Any]] | None:
    """None for the first token of a prompt, as in SGLang."""
    return [[finite(logprob), token, None] for logprob, token in scored.top] or None
