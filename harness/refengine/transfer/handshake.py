"""What two engines must know of each other before KV goes from one to the other, and which pairs are refused.

The decode front and the router fetch an `EngineShape` from each engine and ask `refuse_pair`, before any request
is sent. The rules are those of the layout: tokens are dealt anew from a prefill side of dcp 1 to any decode side,
or stay with their DCP rank; nothing else is built. Everything is told as launched, not as a fault may have made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.refengine.config import DTYPES, DisaggregationMode, EngineConfig, TransferBackend
from harness.refengine.served_model import ServedModel
from harness.refengine.transfer.told import require_plain
from harness.topology import KVLayout, ParallelConfig, kv_head_range
from harness.topology.config import require_fields, require_positive

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """One side of a pair: what decides where each row of its KV lies and what the row means.

    Sizes count layers, KV heads, elements, ranks and tokens. `model_sha256` is of the checkpoint, None for random
    weights, which `seed` (None for a checkpoint) decides. Raises UsageError naming the value and what is allowed.
    """

    mode: DisaggregationMode
    transport: TransferBackend
    model: str
    model_sha256: str | None
    seed: int | None
    dtype: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    tp_size: int
    dcp_size: int
    page_size: int
    interleave: int

    def __post_init__(self) -> None:
        require_positive(num_layers=self.num_layers, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype is {self.dtype!r}; allowed: {', '.join(DTYPES)}")
        self.parallel()
        self.layout()
        self.kv_heads(0)

    @classmethod
    def of(cls, config: EngineConfig, model: ServedModel) -> EngineShape:
        """The shape of an engine launched with `config`, whose `--model` resolved to `model`."""
        return cls(
            mode=config.disaggregation_mode,
            transport=config.disaggregation_transfer_backend,
            model=config.model,
            model_sha256=model.sha256,
            seed=None if model.checkpoint else config.seed,
            dtype=config.dtype,
            num_layers=model.config.num_layers,
            num_kv_heads=model.config.num_kv_heads,
            head_dim=model.config.head_dim,
            tp_size=config.tp,
            dcp_size=config.dcp,
            page_size=config.page_size,
            interleave=config.interleave,
        )

    def parallel(self) -> ParallelConfig:
        """The topology; raises TopologyError where it cannot be built."""
        return ParallelConfig(tp_size=self.tp_size, dcp_size=self.dcp_size)

    def layout(self) -> KVLayout:
        """Where tokens live; raises TopologyError where page size and interleave do not fit."""
        return KVLayout(dcp_size=self.dcp_size, page_size=self.page_size, interleave=self.interleave)

    def kv_heads(self, tp_rank: int) -> range:
        """Global KV heads that a rank stores, in the order of its pool."""
        return kv_head_range(
            num_kv_heads=self.num_kv_heads, tp_size=self.tp_size, dcp_size=self.dcp_size, tp_rank=tp_rank
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> EngineShape:
        """The inverse of `to_dict`, of what a peer told: raises UsageError naming the field that is wrong."""
        require_plain("the shape of an engine", values)
        told = require_fields("the shape of an engine", [field.name for field in fields(cls)], values)
        for name, types in _JSON_TYPES.items():
            if type(told[name]) not in types:
                allowed = " or ".join(kind.__name__ for kind in types)
                raise UsageError(f"{name} of an engine's shape is {told[name]!r}, but must be {allowed}")
        for name, most in _LARGEST.items():
            if type(told[name]) is int and told[name] > most:
                raise UsageError(f"{name} of an engine's shape is {told[name]}; allowed: 1 to {most}")
        told["mode"] = _member(DisaggregationMode, "mode", told["mode"])
        told["transport"] = _member(TransferBackend, "transport", told["transport"])
        return cls(**told)


# Sizes are checked by what is built of them.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,),
    "model_sha256": (str, type(None)),
    "seed": (int, type(None)),
    "dtype": (str,),
}

# No launch comes near: each rank is a process of one host, and these are far above the largest models. Who tells
# more would have routes worked out for ranks that do not exist, and memory had for rows that do not.
_LARGEST = {
    "num_layers": 1024,
    "num_kv_heads": 1024,
    "head_dim": 4096,
    "tp_size": 1024,
    "dcp_size": 1024,
    "page_size": 1 << 20,
    "interleave": 1 << 20,
}

# What must be the same on both sides, whatever it is.
_EQUAL = {
    "transport": "--disaggregation-transfer-backend",
    "dtype": "--dtype",
    "page_size": "--page-size",
    "num_layers": "the number of layers",
    "num_kv_heads": "the number of KV heads",
    "head_dim": "the size of a head",
}


def refuse_pair(prefill: EngineShape, decode: EngineShape) -> str | None:
    """Why KV cannot go from `prefill` to `decode`: every reason with both values, or None where it can."""
    modes = list(_refuse_modes(prefill, decode))
    reasons = [
        *modes,
        *_refuse_weights(prefill, decode),
        *(
            _differ(what, getattr(prefill, name), getattr(decode, name), rule="both must be the same")
            for name, what in _EQUAL.items()
            if getattr(prefill, name) != getattr(decode, name)
        ),
        # Which side is to deal the other's tokens is not known while their modes are wrong.
        *(() if modes else _refuse_layouts(prefill, decode)),
    ]
    return "; ".join(reasons) or None


def _refuse_modes(prefill: EngineShape, decode: EngineShape) -> Iterator[str]:
    for shape, needed in ((prefill, DisaggregationMode.PREFILL), (decode, DisaggregationMode.DECODE)):
        if shape.mode is not needed:
            yield (
                f"the {needed.value} side runs with --disaggregation-mode {shape.mode.value}, "
                f"but must run with {needed.value}"
            )


def _refuse_weights(prefill: EngineShape, decode: EngineShape) -> Iterator[str]:
    if _weights(prefill) != _weights(decode):
        yield _differ("the model", _named(prefill), _named(decode), rule="both must have the same weights")


def _refuse_layouts(prefill: EngineShape, decode: EngineShape) -> Iterator[str]:
    if prefill.dcp_size not in (1, decode.dcp_size):
        yield _differ(
            "--dcp",
            prefill.dcp_size,
            decode.dcp_size,
            rule="allowed: 1 on the prefill side with any on the decode side, or the same on both",
        )
    # At dcp 1 there are no turns to take.
    if min(prefill.dcp_size, decode.dcp_size) > 1 and prefill.interleave != decode.interleave:
        yield _differ(
            "--interleave",
            prefill.interleave,
            decode.interleave,
            rule="both must be the same where both have a dcp above 1",
        )


def _weights(shape: EngineShape) -> tuple[object, ...]:
    """What decides the weights: a file's bytes wherever it lies, or the name of a shape and a seed."""
    return (shape.model_sha256,) if shape.model_sha256 else (shape.model, shape.seed)


def _named(shape: EngineShape) -> str:
    if shape.model_sha256:
        return f"{shape.model} (SHA-256 {shape.model_sha256})"
    return f"{shape.model} of seed {shape.seed}"


def _differ(what: str, prefill: object, decode: object, *, rule: str) -> str:
    return f"{what} is {prefill} on the prefill side and {decode} on the decode side; {rule}"


def _member(kind: type[E], name: str, value: object) -> E:
    allowed = [member.value for member in kind]
    if value not in allowed:
        raise UsageError(f"{name} of an engine's shape is {value!r}; allowed: {', '.join(allowed)}")
    return kind(value)
