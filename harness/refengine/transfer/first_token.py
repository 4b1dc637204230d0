"""The first token of an answer as a prefill rank tells it: what decode rank 0 must know before its engine acts on it.

It is what `Outputs` tells its own front: "token", its "logprob" and "top", and "prompt_logprobs" and "prompt_top" where
they were asked for. A log-probability may be infinite or no number at all, as the engine has computed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def odd_in_first(first: dict[str, Any], prompt_len: int) -> str | None:
    """Which field is missing or makes no sense for a prompt of this length; None where the token can be used."""

    def is_of_prompt(value: object, is_each: Callable[[object], bool]) -> bool:
        # Nothing stands before the first token of a prompt.
        return (
            isinstance(value, list)
            and len(value) == prompt_len
            and all(each is None or is_each(each) for each in value)
        )

    makes_sense = {
        "token": _is_token(first.get("token")),
        "logprob": _is_logprob(first.get("logprob")),
        "top": _is_top(first.get("top")),
        "prompt_logprobs": "prompt_logprobs" not in first
        or is_of_prompt(first["prompt_logprobs"], _is_logprob),
        "prompt_top": ("prompt_top" in first) == ("prompt_logprobs" in first)
        and ("prompt_top" not in first or is_of_prompt(first["prompt_top"], _is_top)),
    }
    return next((name for name, sense in makes_sense.items() if not sense), None)


def _is_token(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_logprob(value: object) -> bool:
    return type(value) in (int, float)


def _is_top(value: object) -> bool:
    """(log-probability, token) pairs."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _is_logprob(pair[0]) and _is_token(pair[1])
        for pair in value
    )
