"""Which rank of each group one worker is: the per-worker *ps*.

Built before any process group exists (it is the input of group construction), so every rank in it is derived
by arithmetic from the config and the worker's place. Raises TopologyError for a place that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig, require_fields, require_positive


def _require_rank(name: str, rank: int, size: int) -> None:
    if type(rank) is not int or not 0 <= rank < size:
        raise TopologyError(f"{name} is {rank!r}, but must be an integer in 0..{size - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelState:
    """Rank and size of one worker in every kind of group; `gpu_id` is None on a machine without GPUs.

    Raises TopologyError where a rank does not lie below its size.
    """

    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    dp_rank: int
    dp_size: int
    attn_tp_rank: int
    attn_tp_size: int
    attn_cp_rank: int
    attn_cp_size: int
    attn_dcp_rank: int
    attn_dcp_size: int
    attn_dp_rank: int
    attn_dp_size: int
    moe_ep_rank: int
    moe_ep_size: int
    moe_dp_rank: int
    moe_dp_size: int
    gpu_id: int | None = None

    def __post_init__(self) -> None:
        for kind in KINDS:
            size = getattr(self, f"{kind}_size")
            require_positive(**{f"{kind}_size": size})
            _require_rank(f"{kind}_rank", getattr(self, f"{kind}_rank"), size)

    @classmethod
    def trivial(cls, **overrides: int | None) -> ParallelState:
        """The only rank of an engine of one, with single fields set apart.

        Raises TopologyError for a field that does not exist.
        """
        values: dict[str, Any] = {f"{kind}_rank": 0 for kind in KINDS}
        values |= {f"{kind}_size": 1 for kind in KINDS}
        values["gpu_id"] = None
        if unknown := sorted(set(overrides) - set(values)):
            raise TopologyError(f"{unknown[0]} is no field of ParallelState; there are {', '.join(values)}")
        return cls(**(values | overrides))

    @classmethod
    def from_config(
        cls,
        config: ParallelConfig,
        *,
        tp_rank: int,
        pp_rank: int = 0,
        dp_rank: int = 0,
        gpu_id: int | None = None,
    ) -> ParallelState:
        """The worker at `tp_rank` of stage `pp_rank`; `dp_rank` numbers the replica where DP makes replicas.

        Within a TP group the order of ranks is attn_dp, attn_cp, attn_tp for attention (attn_tp runs fastest)
        and moe_dp, moe_ep, moe_tp for experts; `attn_dcp_rank = tp_rank % dcp_size`. Raises TopologyError.
        """
        _require_rank("tp_rank", tp_rank, config.tp_size)
        attn_dp_rank = tp_rank // (config.attn_tp_size * config.attn_cp_size)
        if config.enable_dp_attention and dp_rank:
            raise TopologyError(
                f"dp_rank is {dp_rank}, but under DP attention it follows from tp_rank {tp_rank}"
            )
        return cls(
            tp_rank=tp_rank,
            tp_size=config.tp_size,
            pp_rank=pp_rank,
            pp_size=config.pp_size,
            dp_rank=attn_dp_rank if config.enable_dp_attention else dp_rank,
            dp_size=config.dp_size,
            attn_tp_rank=tp_rank % config.attn_tp_size,
            attn_tp_size=config.attn_tp_size,
            attn_cp_rank=tp_rank // config.attn_tp_size % config.attn_cp_size,
            attn_cp_size=config.attn_cp_size,
            attn_dcp_rank=tp_rank % config.dcp_size,
            attn_dcp_size=config.dcp_size,
            attn_dp_rank=attn_dp_rank,
            attn_dp_size=config.attn_dp_size,
            moe_ep_rank=tp_rank // config.moe_tp_size % config.ep_size,
            moe_ep_size=config.ep_size,
            moe_dp_rank=tp_rank // (config.moe_tp_size * config.ep_size),
            moe_dp_size=config.moe_dp_size,
            gpu_id=gpu_id,
        )

    @classmethod
    def from_json(cls, values: object) -> ParallelState:
        """The state that an engine told, field by field; the inverse of `dataclasses.asdict`."""
        return cls(**require_fields("a worker's state", [field.name for field in fields(cls)], values))

    def for_draft(self) -> ParallelState:
        """The same worker's draft model: it runs in the first stage and keeps its whole KV on each rank."""
        return replace(self, pp_rank=0, attn_dcp_rank=0, attn_dcp_size=1)


# Every kind of group, in field order: what has a `_rank` has a `_size`.
KINDS = tuple(f.name.removesuffix("_rank") for f in fields(ParallelState) if f.name.endswith("_rank"))
