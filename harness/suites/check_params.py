"""The parameters of every check, one model each, and the table that maps a check's name to its model.

A check reads its parameters as attributes of these models and never parses anything itself. Adding a check
means one class here, one line in `CHECK_PARAMS`, and one module in `checks/`. Lengths and sizes are in tokens
and requests; bounds on logprobs are absolute differences in nats.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from harness.suites.fields import Bound, Count, Index, Model, Seconds, Share, Size, Sizes, Slug, Text


class CheckParams(Model):
    """Base of all check parameters."""

    settled_keys: ClassVar[tuple[str, ...]] = ("cpu", "gpu")


class ActiveParams(CheckParams):
    """The engine really runs DCP of this size: by its live topology and its counted collectives."""

    dcp: Size


class ParityParams(CheckParams):
    """Greedy answers equal the baseline's, one request at a time, over prompts of `lengths` tokens."""

    model: Text | None = None
    dtype: Text | None = None
    logprob: Bound = 1e-4
    tokens: Literal["exact", "prefix"] = "exact"
    # Around the shards of dcp <= 8, a page of 64, and a prefill chunk of 256.
    lengths: Sizes = (1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 257)
    max_new_tokens: Count = 16
    seed: Index = 0


class BatchParams(CheckParams):
    """Bursts of `sizes` requests answer as the same requests do alone, but for `mismatch_share` of them."""

    sizes: Sizes
    prompt_len: Count = 12
    max_new_tokens: Count = 8
    mismatch_share: Share = 0.0
    logprob: Bound = 1e-4


class CapacityParams(CheckParams):
    """The reported capacity is what the layout promises against the baseline's; nothing to set."""


class CapsParams(CheckParams):
    """Requests that fit are answered in full, those that never can are refused, on both sides of each cap."""

    max_new_tokens: Count = 4


class RowsParams(CheckParams):
    """Every physical KV row of every rank holds the token that brute-force ownership puts there."""

    lengths: Sizes = (1, 5, 64, 65)
    max_new_tokens: Count = 64


class DrainedParams(CheckParams):
    """After all other checks, within `wait` seconds, no request is left and every KV row is free."""

    wait: Seconds = 10.0


class AccuracyParams(CheckParams):
    """A scored task, gated against the baseline; `effect` is the drop in accuracy that must be found."""

    task: Slug
    questions: Count = 200
    escalate: Count | None = None
    shots: Index = 5
    effect: Share = 0.03


class DecodeSanityParams(CheckParams):
    """Simple questions get sane, repeatable, printable answers."""

    max_new_tokens: Count = 64


CHECK_PARAMS: dict[str, type[CheckParams]] = {
    "active": ActiveParams,
    "parity": ParityParams,
    "batch": BatchParams,
    "capacity": CapacityParams,
    "caps": CapsParams,
    "rows": RowsParams,
    "drained": DrainedParams,
    "accuracy": AccuracyParams,
    "decode_sanity": DecodeSanityParams,
}
