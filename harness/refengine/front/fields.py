"""What native and OpenAI requests have in common: strict fields, and the one way from their values to a
`Prompt`.

Unknown fields and values of the wrong type are refused by pydantic; what this engine does not implement is
accepted at its neutral value only, since an ignored `top_p` would be a wrong answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from harness.errors import UsageError
from harness.refengine.front.call import Prompt
from harness.refengine.requests import GenerateRequest
from harness.refengine.tokenizer import Tokenizer, check_tokens

T = TypeVar("T")

# SGLang's own defaults, for its native and its OpenAI interface alike.
DEFAULT_MAX_NEW_TOKENS = 128
DEFAULT_TEMPERATURE = 1.0
# As in SGLang: a division by less than this is greedy in all but name, and overflows.
GREEDY_BELOW = 1e-6
# OpenAI's own bound on stop sequences is 4; this one only keeps the search per token short.
MAX_STOPS = 16

NonEmpty = Annotated[str, Field(min_length=1)]
Stops = NonEmpty | Annotated[list[NonEmpty], Field(max_length=MAX_STOPS)] | None
Temperature = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]
TopLogprobs = Annotated[int, Field(ge=0, le=32)]
TokenIds = list[int]


def neutral(value: Any) -> AfterValidator:
    """Accept only `value`: the setting exists in SGLang, but any other has no effect here."""

    def check(found: Any) -> Any:
        if found != value:
            raise ValueError(f"only {value!r} is supported, found {found!r}")
        return found

    return AfterValidator(check)


class Strict(BaseModel):
    """No unknown fields, and no guessing of types: "5" is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def new_rid() -> str:
    return secrets.token_hex(16)


def stops_of(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def tokens_of(prompt: str | list[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Token ids of a text, or checked ids. Raises UsageError for an empty prompt or unknown ids."""
    if isinstance(prompt, str):
        if not prompt:
            raise UsageError("the prompt is empty; at least one character is needed")
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the prompt has half a surrogate pair at character {error.start}") from error
        return tuple(tokenizer.encode(prompt))
    check_tokens(prompt, tokenizer.vocab_size)
    return tuple(prompt)


def each(name: str, value: T | list[T], count: int) -> Sequence[T]:
    """The value of each prompt: listed, or the same for all. Raises UsageError for a list of another length."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise UsageError(f"{name} lists {len(value)} values for {count} prompts")
    return value


def make_prompt(
    tokens: tuple[int, ...],
    *,
    rid: str | None,
    max_new_tokens: int,
    temperature: float,
    seed: int | None,
    ignore_eos: bool,
    stop: str | list[str] | None,
    return_logprob: bool = False,
    top_logprobs: int = 0,
    logprob_start: int | None = None,
) -> Prompt:
    """A request as ranks understand it. Without a seed, the draw is different each time."""
    request = GenerateRequest(
        rid=rid or new_rid(),
        tokens=tokens,
        max_new_tokens=max_new_tokens,
        temperature=temperature if temperature >= GREEDY_BELOW else 0.0,
        seed=secrets.randbits(63) if seed is None else seed,
        ignore_eos=ignore_eos,
        return_logprob=return_logprob,
        top_logprobs=top_logprobs,
        logprob_start=logprob_start,
    )
    return Prompt(request=request, stop=stops_of(stop))
