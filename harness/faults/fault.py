"""What a fault is: what it breaks, where it was seen, how it is planted, and which engines it reaches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

from harness.refengine.config import AttentionBackend, DisaggregationMode, EngineConfig


class Reach(StrEnum):
    """Which engines run the code that a fault breaks; on others it does nothing."""

    ENGINE = "engine"
    # The prefill side of a pair.
    PAIR = "pair"
    # Engines of `--attention-backend triton`, and the kernels on their own.
    TRITON = "triton"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One bug to plant. `seams` are the engine's functions it replaces, `source` the report that it is
    modelled on.

    `module` is a module of this package whose `install()` patches those seams.
    """

    id: str
    title: str
    source: str
    seams: tuple[str, ...]
    module: str
    reach: Reach = Reach.ENGINE

    def needs(self, config: EngineConfig) -> str | None:
        """The argument that an engine launched with `config` lacks for this fault to break anything; None where it
        lacks none."""
        if self.reach is Reach.PAIR and config.disaggregation_mode is not DisaggregationMode.PREFILL:
            return "--disaggregation-mode prefill"
        if self.reach is Reach.TRITON and config.attention_backend is not AttentionBackend.TRITON:
            return "--attention-backend triton"
        return None

    def install(self) -> None:
        """Patch this process. Call before ranks are forked; faults on different seams may be combined."""
        import_module(f"harness.faults.{self.module}").install()
