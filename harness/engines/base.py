"""What every engine looks like to a check: requests, answers, and a normalised `/server_info`.

Adapters translate an engine's own words into these; a check never sees which engine it speaks to. Where an
engine offers no proof of what ran (`ServerInfo.ranks is None`), a check says `unproven` instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt as token ids; greedy unless `temperature` is above 0. EOS never ends it early."""

    input_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float = 0.0
    prompt_logprobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`logprobs[i]` is the natural log-probability of `tokens[i]`; `prompt_logprobs[p]` that of the prompt's
    token p given those before it (empty where none were asked for; position 0 has none and is left out)."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_logprobs: tuple[float, ...]
    finish_reason: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A text that continues a text. `finish_reason` is OpenAI's: `length` where the token limit cut it off,
    `stop` where the model or a stop string ended it. `tokens` and `prompt_tokens` are 0 where an engine does
    not count them."""

    text: str
    tokens: int
    finish_reason: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTransfer:
    """KV that a rank of a pair has handed over since its start: sent by a prefill rank, received by a decode rank.

    `bytes` is KV alone. `bytes_by_peer` is by tp_rank of the other side.
    """

    bytes: int
    bytes_by_peer: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """The live topology of one rank as it told it itself. `collectives` counts calls by group, then kind.

    `sources` is what the rank told of where it reads its topology from, as JSON; None where it tells nothing of it.
    `transfer` is None for a rank of an engine that is no side of a pair.
    """

    tp_rank: int
    pid: int
    attn_dcp_rank: int
    attn_dcp_size: int
    dcp_group: tuple[int, ...]
    collectives: dict[str, dict[str, int]]
    kv_rows: int
    kv_rows_free: int
    kv_row_bytes: int
    sources: Mapping[str, Any] | None = None
    transfer: RankTransfer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairInfo:
    """The addresses of the engines behind a router."""

    prefill: tuple[str, ...]
    decode: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """`max_total_num_tokens` is aggregate over a DCP group, whatever the engine itself reports.

    `capped_by_argument` says that an argument, and not the bytes of the pool, decided it; `context_length` is
    the longest prompt plus answer that the model takes, None where the engine does not tell; `model` is what
    was loaded, whatever name it is served by, empty where the engine does not tell. Where `pair` is told a router
    answers, and everything else is what its decode engine tells.
    """

    max_total_num_tokens: int
    tp_size: int
    dcp_size: int
    page_size: int
    interleave: int
    dcp_comm_backend: str
    nonce: str
    running: int
    waiting: int
    context_length: int | None
    capped_by_argument: bool
    ranks: tuple[RankInfo, ...] | None
    raw: dict[str, Any] = field(repr=False)
    model: str = ""
    pair: PairInfo | None = None

    @property
    def widened_page_size(self) -> int:
        """Tokens in one logical page: what admission rounds up to."""
        return self.page_size * self.dcp_size


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRow:
    """One physical KV row that holds a token."""

    row: int
    index: int
    position: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A request in the pool: its tokens in order and its logical page table."""

    rid: str
    index: int
    tokens: tuple[int, ...]
    kv_len: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRows:
    """What one rank's pool holds. `poisoned` says that every free row still holds the poison."""

    tp_rank: int
    attn_dcp_rank: int
    rows: tuple[HeldRow, ...]
    free_rows: int
    poisoned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KVRows:
    """All ranks' pools at one step boundary."""

    page_size: int
    dcp_size: int
    interleave: int
    requests: tuple[InFlight, ...]
    ranks: tuple[RankRows, ...]
