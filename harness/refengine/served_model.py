"""What `--model` names: a model of random weights, the trained one that harness brings, or a checkpoint file.

Asked by the launcher, so that a launch is refused before any process starts, by the front for the tokenizer,
and by every rank for shape and weights. Imports no torch. Raises `UsageError` for a name that is none, and for
a checkpoint that is not one (`checkpoint`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.refengine.checkpoint import CHECKPOINT_SUFFIX, Checkpoint, read_checkpoint
from harness.refengine.model import RANDOM_MODELS, ModelConfig
from harness.refengine.tokenizer import ByteTokenizer, Tokenizer

TRAINED_MODELS: dict[str, Path] = {
    "builtin:sums-gqa": Path(__file__).parent / "checkpoints" / f"sums-gqa{CHECKPOINT_SUFFIX}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model of its shape; without a `checkpoint` its weights are random and its tokens bytes."""

    config: ModelConfig
    checkpoint: Checkpoint | None = None

    @property
    def sha256(self) -> str | None:
        """Of the checkpoint file, in hex; None where there is none."""
        return self.checkpoint.sha256 if self.checkpoint else None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.tokenizer if self.checkpoint else ByteTokenizer()


def resolve_model(name: str) -> ServedModel:
    """The model that `name` stands for. Raises UsageError listing the names there are."""
    if name in RANDOM_MODELS:
        return ServedModel(config=RANDOM_MODELS[name])
    if name not in TRAINED_MODELS and not name.endswith(CHECKPOINT_SUFFIX):
        known = ", ".join(sorted({*RANDOM_MODELS, *TRAINED_MODELS}))
        raise UsageError(f"unknown model {name!r}; there are: {known}, and any file *{CHECKPOINT_SUFFIX}")
    checkpoint = read_checkpoint(TRAINED_MODELS.get(name, Path(name)), name=name)
    return ServedModel(config=checkpoint.config, checkpoint=checkpoint)
