"""Pairs of a prefill and a decode engine, supported and refused: rows of the table in docs/pd.md and of its tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.refengine.config import DisaggregationMode, EngineConfig, TransferBackend
from harness.refengine.served_model import resolve_model
from harness.refengine.transfer.handshake import EngineShape

KV_HEADS = {"builtin:random-gqa-kv1": 1, "builtin:random-gqa": 2, "builtin:random-gqa-kv8": 8}
MODELS = {heads: model for model, heads in KV_HEADS.items()}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two engines by what differs from a healthy pair with defaults; `refused` is what the refusal says, if any.

    `shows` is why the row is there.
    """

    prefill: Mapping[str, Any] = field(default_factory=dict)
    decode: Mapping[str, Any] = field(default_factory=dict)
    kv_heads: int = 2
    shows: str
    refused: str = ""

    @property
    def id(self) -> str:
        return f"{told(self.prefill)}-to-{told(self.decode)}-kv{self.kv_heads}".replace(" ", ",")

    def configs(
        self, transport: TransferBackend = TransferBackend.TCP, **both: Any
    ) -> tuple[EngineConfig, EngineConfig]:
        """Launch arguments of the two, with `both` for both of them."""
        common = {"disaggregation_transfer_backend": transport, "model": MODELS[self.kv_heads], **both}
        prefill = {"disaggregation_mode": DisaggregationMode.PREFILL, **common, **self.prefill}
        decode = {"disaggregation_mode": DisaggregationMode.DECODE, **common, **self.decode}
        return EngineConfig(**prefill), EngineConfig(**decode)

    def shapes(self, transport: TransferBackend = TransferBackend.TCP) -> tuple[EngineShape, EngineShape]:
        prefill, decode = self.configs(transport)
        return shape_of(prefill), shape_of(decode)


def shape_of(config: EngineConfig) -> EngineShape:
    return EngineShape.of(config, resolve_model(config.model))


def told(side: Mapping[str, Any]) -> str:
    """`tp2 dcp1 page_size 32`: a side as the table and test ids name it."""
    sizes = f"tp{side.get('tp', 1)} dcp{side.get('dcp', 1)}"
    others = [f"{name} {value}" for name, value in side.items() if name not in ("tp", "dcp")]
    return " ".join([sizes, *others])


SUPPORTED = [
    Pair(prefill={}, decode={}, shows="one rank each"),
    Pair(prefill={}, decode={"tp": 2, "dcp": 2}, shows="one rank deals to two"),
    Pair(prefill={"tp": 2}, decode={"tp": 4, "dcp": 4}, shows="each rank brings one KV head to all four"),
    Pair(prefill={"tp": 4}, decode={"tp": 4, "dcp": 2}, shows="copies of a head share the work"),
    Pair(
        prefill={"tp": 8}, decode={"tp": 8, "dcp": 8}, kv_heads=8, shows="eight sources for each destination"
    ),
    Pair(
        prefill={"tp": 2}, decode={"tp": 8, "dcp": 2}, kv_heads=1, shows="one KV head, copied on both sides"
    ),
    Pair(prefill={"tp": 4}, decode={"tp": 2}, kv_heads=8, shows="without DCP, tp 4 to 2"),
    Pair(prefill={"tp": 2}, decode={"tp": 4}, shows="without DCP, tp 2 to 4, heads copied for decode"),
    Pair(prefill={"tp": 8}, decode={}, kv_heads=2, shows="a prefill rank that only has copies sends nothing"),
    Pair(prefill={"tp": 2, "dcp": 2}, decode={"tp": 2, "dcp": 2}, shows="same dcp, same tp"),
    Pair(prefill={"tp": 2, "dcp": 2}, decode={"tp": 4, "dcp": 2}, shows="same dcp, tp 2 to 4"),
    Pair(prefill={"tp": 8, "dcp": 2}, decode={"tp": 2, "dcp": 2}, kv_heads=8, shows="same dcp, tp 8 to 2"),
    Pair(prefill={"tp": 4, "dcp": 4}, decode={"tp": 8, "dcp": 4}, kv_heads=1, shows="same dcp, heads copied"),
    Pair(
        prefill={"tp": 2, "interleave": 2},
        decode={"tp": 4, "dcp": 4, "interleave": 4},
        shows="at dcp 1 the interleave does not matter",
    ),
    Pair(
        prefill={"tp": 4, "dcp": 2, "interleave": 4},
        decode={"tp": 2, "dcp": 2, "interleave": 4},
        shows="same dcp, same interleave",
    ),
]

REFUSED = [
    Pair(
        prefill={"tp": 2, "dcp": 2},
        decode={"tp": 4, "dcp": 4},
        shows="two dealings",
        refused="--dcp is 2 on the prefill side and 4 on the decode side; allowed: 1 on the prefill side",
    ),
    Pair(
        prefill={"tp": 4, "dcp": 4},
        decode={"tp": 4, "dcp": 2},
        shows="fewer ranks to deal to",
        refused="--dcp is 4 on the prefill side and 2 on the decode side; allowed: 1 on the prefill side",
    ),
    Pair(
        prefill={"tp": 4, "dcp": 4},
        decode={"tp": 4},
        shows="DCP on the prefill side alone",
        refused="--dcp is 4 on the prefill side and 1 on the decode side; allowed: 1 on the prefill side",
    ),
    Pair(
        prefill={"tp": 2, "dcp": 2},
        decode={"tp": 2, "dcp": 2, "interleave": 4},
        shows="turns of other lengths",
        refused="--interleave is 1 on the prefill side and 4 on the decode side; both must be the same where",
    ),
    Pair(
        prefill={"tp": 2},
        decode={"tp": 4, "dcp": 4, "page_size": 32},
        shows="other pages",
        refused="--page-size is 16 on the prefill side and 32 on the decode side; both must be the same",
    ),
    Pair(
        prefill={"tp": 2, "dtype": "bf16"},
        decode={"tp": 4, "dcp": 4},
        shows="other numbers",
        refused="--dtype is bf16 on the prefill side and fp32 on the decode side; both must be the same",
    ),
    Pair(
        prefill={"tp": 2, "seed": 1},
        decode={"tp": 4, "dcp": 4},
        shows="another model of the same shape",
        refused="the model is builtin:random-gqa of seed 1 on the prefill side and builtin:random-gqa of seed 0 on",
    ),
    Pair(
        prefill={"tp": 2, "model": "builtin:random-gqa-kv8"},
        decode={"tp": 4, "dcp": 4},
        shows="another model and another shape",
        refused="the number of KV heads is 8 on the prefill side and 2 on the decode side; both must be the same",
    ),
]

DOCS_HEAD = [
    f"| prefill | decode | KV heads | {' | '.join(TransferBackend)} | why the row is there |",
    f"| --- | --- | --- | {'--- | ' * len(TransferBackend)}--- |",
]


def docs_table() -> list[str]:
    """The lines of the table in docs/pd.md."""
    return [*DOCS_HEAD, *(docs_row(pair) for pair in [*SUPPORTED, *REFUSED])]


def docs_row(pair: Pair) -> str:
    word = "refused" if pair.refused else "supported"
    cells = [
        told(pair.prefill),
        told(pair.decode),
        str(pair.kv_heads),
        *[word] * len(TransferBackend),
        pair.shows,
    ]
    return f"| {' | '.join(cells)} |"
