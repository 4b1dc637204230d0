"""What goes wrong where two sources of a field differ, in plain words and for the direction they differ in.

Called by `harness.topology.sources` for each field that it reports. The words are about what the engine does,
so that a report can be read without knowing which consumer reads which source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """What a source says on `axis`, and `other`, the value that it differs from most tellingly.

    Sources are `seed`, `ps`, `live`, and `draft`, the ps of a draft model; `up` says whether live groups exist, `off`
    whether live answers that DCP is off. A value is None only for `gpu_id`, of which no number is told.
    """

    axis: str
    source: str
    value: Any
    other: Any
    up: bool
    off: bool


def consequence(contrast: Contrast) -> str:
    """One clause, of what the engine does wrong."""
    if contrast.source == "draft":
        words = _DRAFT[contrast.axis]
    elif contrast.axis == "attn_dcp_size":
        words = _dcp_size(contrast)
    elif contrast.axis in _SIZES:
        words = _SIZES[contrast.axis][_is_larger(contrast)]
    else:
        words = _RANKS[contrast.axis]
    return words.format(times=_times(contrast)) if _TIMES in words else words


def _dcp_size(contrast: Contrast) -> str:
    """Pools, caps and page widths follow from it: who reads the larger number decides what breaks."""
    larger = _is_larger(contrast)
    words = (_CAP if contrast.source == "seed" else _POOL)[larger]
    if larger and contrast.other == 1 and contrast.off:
        up = "" if contrast.up else "no DCP group is up, so "
        return f"{up}DCP is off: every rank keeps the whole KV, and {words}"
    return words


def _is_larger(contrast: Contrast) -> bool:
    return bool(contrast.value > contrast.other)


def _times(contrast: Contrast) -> str:
    """How often the smaller value goes into the larger, as a word where there is one: `four times`."""
    small, large = sorted((contrast.value, contrast.other))
    ratio = large / small
    return f"{_WORDS.get(ratio, f'{ratio:g}')} times"


_TIMES = "{times}"
_WORDS: dict[float, str] = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}

# Chosen by whether the first value is the larger one.
_POOL = {
    True: "the KV pool is sized {times} too large: a request admitted that can never be scheduled",
    False: "the KV pool is sized {times} too small: tokens are dealt to ranks that it does not count, and requests"
    " refused that would fit",
}
_CAP = {
    True: "the scheduler's cap reads a number {times} larger than the pool: a request admitted that can never be"
    " scheduled",
    False: "the scheduler's cap reads a number {times} smaller than the pool: requests refused that would fit",
}

# Of a rank, beside the line of its size: nothing else is wrong with it.
LIVE_IS_OFF = (
    "differs only because DCP is off in live (see attn_dcp_size): no rows change owner, each rank keeps all"
)

_DRAFT = {
    "attn_dcp_size": "the draft's KV pool is sized {times} too large, and its attention looks at a shard of what it"
    " keeps whole",
    "attn_dcp_rank": "a draft rank that keeps its whole KV takes itself for one of several and skips the tokens of"
    " the others",
    "pp_rank": "the draft waits for another stage's activations, but it runs whole in the first stage",
}

_SIZES: dict[str, dict[bool, str]] = {
    "tp_size": {
        True: "weights are cut into more parts than ranks hold: what the missing ranks were to compute is never summed",
        False: "weights are cut into fewer parts than ranks hold: parts are computed and summed more than once",
    },
    "pp_size": {
        True: "layers are dealt to stages that do not exist: the last layers are never run",
        False: "layers are dealt to too few stages: some run in two stages",
    },
    "dp_size": {
        True: "requests are routed to replicas that do not exist and never answered",
        False: "replicas beyond the number get no requests",
    },
    "attn_tp_size": {
        True: "a rank computes too few attention heads: the heads of missing ranks are computed by nobody",
        False: "a rank computes too many attention heads: its neighbour's heads are computed twice",
    },
    "attn_cp_size": {
        True: "prompts are cut into more pieces than ranks: a piece that nobody computes",
        False: "prompts are cut into fewer pieces than ranks: a piece computed twice",
    },
    "attn_dp_size": {
        True: "the batch is gathered from slices that do not exist: the collective never ends",
        False: "the batch is gathered from too few slices: tokens of other slices are left out",
    },
    "moe_ep_size": {
        True: "experts are dealt to ranks that do not exist: tokens routed to them are lost",
        False: "experts are held by two ranks: their outputs are summed twice",
    },
    "moe_dp_size": {
        True: "tokens are gathered for experts from ranks that do not exist: the collective never ends",
        False: "tokens of other ranks never reach the experts held here",
    },
}

_RANKS = {
    "tp_rank": "a rank loading its neighbour's weights: one part is summed twice, another never",
    "pp_rank": "a stage running its neighbour's layers",
    "dp_rank": "a worker answering under its neighbour's number: answers and metrics of two replicas are mixed",
    "attn_tp_rank": "a rank computing its neighbour's attention heads",
    "attn_cp_rank": "a rank computing its neighbour's piece of the prompt",
    "attn_dcp_rank": "a rank writing its neighbour's rows: those tokens are kept twice, its own by nobody",
    "attn_dp_rank": "a rank taking its neighbour's slice of the batch: requests answered twice, others never",
    "moe_ep_rank": "a rank loading its neighbour's experts: tokens routed to its own are lost",
    "moe_dp_rank": "a rank taking its neighbour's tokens through the experts",
    "gpu_id": "a rank computing on its neighbour's device: two ranks share one memory, tensors meet on two devices",
}
