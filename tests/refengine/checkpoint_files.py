"""Small checkpoints: random weights in the file format of trained models, and ways to spoil one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from harness.refengine.checkpoint import FORMAT, MODEL_FIELDS, tensor_shapes
from harness.refengine.model import BYTE_VOCABULARY, ModelConfig

Arrays = dict[str, np.ndarray[Any, Any]]

# With a space, without, of more than one byte a character, one inside another; enough of them that a random
# model writes a word now and then.
WORDS = ("the ", " apples", "apple", "naïve", ", and ", "####", *(f" word{n}" for n in range(200)))


def model_config(words: Sequence[str] = WORDS, **shape: Any) -> ModelConfig:
    """Two KV heads for eight query heads, like the built-in ones, and a token for each of `words`."""
    vocab_size = BYTE_VOCABULARY + len(words)
    return ModelConfig(**{"name": "small", "hidden": 64, "ffn": 128, "vocab_size": vocab_size, **shape})


def random_tensors(config: ModelConfig, *, seed: int = 5) -> Arrays:
    """fp16 with variance 1/fan_in, as `weights.random_weights` draws them."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, (rows, columns) in tensor_shapes(config).items():
        scale = {"embedding": 1.0, "lm_head": config.logit_scale * columns**-0.5}.get(name, columns**-0.5)
        tensors[name] = (rng.standard_normal((rows, columns)) * scale).astype(np.float16)
    return tensors


def metadata(config: ModelConfig, words: Sequence[str] = WORDS) -> dict[str, str]:
    shape = {name: value for name, value in asdict(config).items() if name in MODEL_FIELDS}
    return {"format": FORMAT, "model": json.dumps(shape), "words": json.dumps(list(words))}


def make_random_checkpoint(
    path: Path,
    *,
    config: ModelConfig | None = None,
    words: Sequence[str] = WORDS,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    changed: Mapping[str, str] | None = None,
) -> Path:
    """Write a checkpoint; `tensors` replaces the weights, `changed` texts of the metadata."""
    config = config or model_config(words)
    weights = dict(random_tensors(config) if tensors is None else tensors)
    save_file(weights, path, metadata={**metadata(config, words), **(changed or {})})
    return path
