"""Writes a trained model as the engine reads it, and reads it back for the final evaluation.

The safetensors library writes metadata in another order each time; here it is sorted, so that the same
weights are the same file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from harness.refengine.checkpoint import FORMAT, MODEL_FIELDS
from harness.refengine.word_tokenizer import WordTokenizer
from reference_training.model import Decoder

# Tensors begin at a multiple of this many bytes, as the library's own files have it.
_ALIGNMENT = 8


def write_checkpoint(
    path: Path, model: Decoder, tokenizer: WordTokenizer, *, training: Mapping[str, object]
) -> None:
    """fp16 weights with their shape, words, and where they come from; replaces `path` in one go."""
    metadata = {
        "format": FORMAT,
        "model": json.dumps({field: getattr(model.config, field) for field in MODEL_FIELDS}),
        "words": json.dumps(tokenizer.words),
        "training": json.dumps(training),
    }
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_bytes(_safetensors(model.tensors(), metadata))
    unfinished.replace(path)


def _safetensors(named: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    body = b""
    for name, tensor in sorted(named.items()):
        data = tensor.to(torch.float16).contiguous().numpy().tobytes()
        header[name] = {
            "dtype": "F16",
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % _ALIGNMENT)
    return struct.pack("<Q", len(told)) + told + body


def read_weights(path: Path, model: Decoder) -> None:
    """Give `model` the weights of the file, rounded as the engine gets them."""
    model.load_tensors({name: tensor.float() for name, tensor in load_file(path).items()})
