"""How many ranks of each kind one engine has, as its launch arguments say it: the config *seed*.

Built once from the arguments, before any process exists. A `ParallelConfig` that exists can be built: every
rule is checked by `__post_init__` with a `TopologyError` (not an assertion, which `python -O` would drop).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from harness.errors import TopologyError


def require_positive(**values: int) -> None:
    """Raise TopologyError naming the first value that is not an integer of at least 1 (a bool is no size)."""
    for name, value in values.items():
        if type(value) is not int or value < 1:
            raise TopologyError(f"{name} is {value!r}, but must be an integer of at least 1")


def require_divides(*, total: int, total_name: str, part: int, part_name: str, rule: str) -> None:
    """Raise TopologyError where `part` does not divide `total`; the message names both and the rule."""
    if total % part:
        raise TopologyError(f"{total_name} {total} is not divisible by {part_name} {part}: {rule}")


def require_fields(what: str, names: Collection[str], found: object) -> dict[str, Any]:
    """The values of exactly these fields, as JSON gave them. Raises TopologyError naming what is missing or odd."""
    if not isinstance(found, Mapping):
        raise TopologyError(f"{what} is {found!r}, but must be a mapping of {', '.join(names)}")
    if unlike := [name for name in (*names, *found) if (name in names) != (name in found)]:
        fault = "lacks" if unlike[0] in names else "has an unknown"
        raise TopologyError(f"{what} {fault} {unlike[0]}; its fields are {', '.join(names)}")
    return dict(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """Sizes in ranks; every rank of one engine is given the same config.

    One engine is `pp_size` stages of `tp_size` ranks. `dp_size` counts whole replicas of that, or, with
    `enable_dp_attention`, the slices into which attention cuts each TP group. `attn_cp_size`, `dcp_size`,
    `ep_size` and `moe_dp_size` never add ranks: they name subgroups of a TP group.

    Raises TopologyError when a size is no positive integer or does not divide what it cuts, or the switch is
    no bool.
    """

    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1
    attn_cp_size: int = 1
    dcp_size: int = 1
    ep_size: int = 1
    moe_dp_size: int = 1
    enable_dp_attention: bool = False

    def __post_init__(self) -> None:
        require_positive(**{f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith("_size")})
        if type(self.enable_dp_attention) is not bool:
            raise TopologyError(
                f"enable_dp_attention is {self.enable_dp_attention!r}, but must be true or false"
            )
        self._check_attention()
        self._check_experts()

    @classmethod
    def from_json(cls, values: object) -> ParallelConfig:
        """The config that an engine told, field by field; the inverse of `dataclasses.asdict`."""
        return cls(**require_fields("a seed", [field.name for field in fields(cls)], values))

    @property
    def attn_dp_size(self) -> int:
        """Attention slices of one TP group: `dp_size` under DP attention, else 1."""
        return self.dp_size if self.enable_dp_attention else 1

    @property
    def attn_tp_size(self) -> int:
        """Ranks that share the heads of one attention layer: `tp / attn_dp / attn_cp`."""
        return self.tp_size // (self.attn_dp_size * self.attn_cp_size)

    @property
    def moe_tp_size(self) -> int:
        """Ranks that share one expert: `tp / ep / moe_dp`."""
        return self.tp_size // (self.ep_size * self.moe_dp_size)

    @property
    def world_size(self) -> int:
        """Ranks of one replica: `tp * pp`."""
        return self.tp_size * self.pp_size

    def _check_attention(self) -> None:
        require_divides(
            total=self.tp_size,
            total_name="tp_size",
            part=self.attn_dp_size * self.attn_cp_size,
            part_name="dp_size * attn_cp_size" if self.enable_dp_attention else "attn_cp_size",
            rule="attention cuts each TP group into equal slices",
        )
        cut = self.attn_tp_size != self.tp_size
        require_divides(
            total=self.attn_tp_size,
            total_name="attn_tp_size" if cut else "tp_size",
            part=self.dcp_size,
            part_name="dcp_size",
            rule="DCP groups are contiguous slices of equal size of each attention TP group"
            if cut
            else "DCP groups are contiguous slices of equal size of each TP group",
        )

    def _check_experts(self) -> None:
        require_divides(
            total=self.tp_size,
            total_name="tp_size",
            part=self.ep_size * self.moe_dp_size,
            part_name="ep_size * moe_dp_size",
            rule="experts cut each TP group into equal slices",
        )
