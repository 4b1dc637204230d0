"""Which ranks speak with each other in a handover: those with a route, and decode rank 0 with all others.

A prefill rank without a route has nothing to send, yet must learn how a handover ends: it has an empty pair with
decode rank 0. So every rank of either engine has a pair, and can tell its own engine how far it has come.
"""

from __future__ import annotations

import torch

from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.packing import BlockFormat
from harness.refengine.transfer.routes import Route, routes, routes_from, routes_to


def destinations_of(prefill: EngineShape, decode: EngineShape, source: int) -> dict[int, Route | None]:
    """The decode ranks that prefill rank `source` speaks with; raises UsageError where the pair is refused."""
    own = routes_from(routes(prefill, decode), source)
    return {route.destination: route for route in own} or {0: None}


def sources_of(prefill: EngineShape, decode: EngineShape, destination: int) -> dict[int, Route | None]:
    """The prefill ranks that decode rank `destination` speaks with; raises UsageError where the pair is refused."""
    every = routes(prefill, decode)
    sources: dict[int, Route | None] = {route.source: route for route in routes_to(every, destination)}
    if destination == 0:
        busy = {route.source for route in every}
        sources.update({source: None for source in range(prefill.tp_size) if source not in busy})
    return sources


def block_format(shape: EngineShape, route: Route, dtype: torch.dtype) -> BlockFormat:
    """What a block of this route looks like on both sides."""
    return BlockFormat(
        num_layers=shape.num_layers, kv_heads=len(route.heads), head_dim=shape.head_dim, dtype=dtype
    )
