"""What the scheduler hands to the model runner: one step's work, the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ForwardMode(StrEnum):
    """EXTEND computes several new tokens of a request (a prefill chunk), DECODE exactly one of each."""

    EXTEND = "extend"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceChunk:
    """The new tokens of one request in this step.

    `tokens[0]` stands at position `start`, which is also the number of tokens already in the KV pool.
    `pages` is the request's logical page table and covers `start + len(tokens)` tokens. With
    `all_logits` the step returns a row of logits for every new token (prompt logprobs), else for the last only.
    `index` is a small number that names the request in the pool's row tags while it runs.
    """

    rid: str
    index: int
    tokens: tuple[int, ...]
    start: int
    pages: tuple[int, ...]
    all_logits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step. DECODE batches hold chunks of exactly one token."""

    mode: ForwardMode
    chunks: tuple[SequenceChunk, ...]
