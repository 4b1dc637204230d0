"""What a training run is made of: every number that the result depends on. Budgets are steps, never seconds."""

from __future__ import annotations

from dataclasses import dataclass

from harness.refengine.model import BYTE_VOCABULARY, ModelConfig

# Gradients of one step are the sum over this many shards, whatever the number of processes.
SHARDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the training; `rows` of `length` tokens go into each shard's step.

    A problem gets a number of worked examples drawn from `shots`, fewer where a row cannot hold them.
    """

    length: int
    rows: int
    shots: tuple[int, ...]


# Short rows first: they teach the sums at the least cost. But a model that has seen 256 positions answers no
# prompt of 5 examples (some 500 tokens), so the last part has rows that hold those.
SHORT = Phase(length=256, rows=8, shots=(0, 0, 0, 1))
LONG = Phase(length=640, rows=3, shots=(0, 0, 1, 2, 3, 4, 5, 5, 6, 8))
SHORT_SHARE = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """`seed` draws the first weights and the examples' numbers; rates fall linearly to 0 after the warm-up."""

    steps: int
    seed: int = 0
    # For the matrices inside layers (Muon), and for embedding and LM head (AdamW).
    matrix_rate: float = 0.02
    table_rate: float = 3e-3
    warmup: int = 20

    def phase(self, step: int) -> Phase:
        return SHORT if step < SHORT_SHARE * self.steps else LONG

    def rate_share(self, step: int) -> float:
        """What the rates are multiplied by in `step`."""
        return min(1.0, (step + 1) / self.warmup) * (1.0 - step / self.steps)


def model_config(words: int) -> ModelConfig:
    """The shape to train: that of the built-in random models, twice as deep."""
    return ModelConfig(
        name="builtin:sums-gqa", vocab_size=BYTE_VOCABULARY + words, num_layers=4, qk_scale=1.0
    )
