"""A trained model as a file: safetensors, fp16, with shape and vocabulary in its metadata.

Metadata of format `harness-reference-1`: `model` is a JSON object with the fields of `ModelConfig` in
`MODEL_FIELDS`, `words` a JSON list of the tokens from 258 on. Tensors are those of `weights.ModelWeights`.
Read without torch by every process that needs a part of it. A file is read once and whole, so that the hash
told is that of the weights served, also where somebody replaces the file meanwhile.
Failure rule: whatever is wrong with a file is one UsageError that names the file, what was found and what is
allowed; a tensor that the engine would ignore is wrong as well, since its answers would be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from safetensors import SafetensorError, deserialize

from harness.errors import UsageError
from harness.refengine.model import BYTE_VOCABULARY, ModelConfig
from harness.refengine.word_tokenizer import WordTokenizer

CHECKPOINT_SUFFIX = ".safetensors"
FORMAT = "harness-reference-1"
# As safetensors spells them: what a weight may be stored as, converted to --dtype when it is loaded.
FLOATS = ("F16", "BF16", "F32")
# Every rank reads the file and holds the whole model for a moment: one made for another engine is refused
# before it fills the memory.
MAX_BYTES = 256 << 20
# Safetensors: the header is JSON, and this many bytes in front of it tell its length, little end first.
_LENGTH_BYTES = 8
# No fp32 number is above it.
MAX_NUMBER = 3e38
# More wrong tensors than this help nobody.
_MAX_TOLD = 3

_SIZES = ("num_layers", "hidden", "num_q_heads", "num_kv_heads", "head_dim", "ffn", "vocab_size")
_NUMBERS = ("rope_theta", "norm_eps", "qk_scale")
MODEL_FIELDS = (*_SIZES, "max_positions", *_NUMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checked file: `data` is all of it, `sha256` its hash."""

    config: ModelConfig
    tokenizer: WordTokenizer
    sha256: str
    data: bytes


def read_checkpoint(path: Path, *, name: str) -> Checkpoint:
    """Read and check the file. The model is called `name`. Raises UsageError."""
    try:
        data = _read(path)
        header = _header(data)
        metadata = header.pop("__metadata__", {})
        if (found := metadata.get("format")) != FORMAT:
            _refuse(f"its format is {found!r}; allowed: {FORMAT!r}")
        config = _config(_json(metadata, "model"), name=name)
        tokenizer = _tokenizer(_json(metadata, "words"), config)
        _check_tensors(header, config)
    except _NotACheckpointError as wrong:
        raise UsageError(f"checkpoint {path}: {wrong}") from wrong
    sha256 = hashlib.sha256(data).hexdigest()
    return Checkpoint(config=config, tokenizer=tokenizer, sha256=sha256, data=data)


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a checkpoint of this shape, in the layout of `weights.LayerWeights`."""
    heads = config.num_q_heads + 2 * config.num_kv_heads
    layer = {
        "qkv": (heads * config.head_dim, config.hidden),
        "o_proj": (config.hidden, config.num_q_heads * config.head_dim),
        "gate_up": (2 * config.ffn, config.hidden),
        "down_proj": (config.hidden, config.ffn),
    }
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("embedding", "lm_head"), (config.vocab_size, config.hidden)
    )
    for index in range(config.num_layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


class _NotACheckpointError(Exception):
    """What is wrong, without the file's name. Never leaves this module."""


def _refuse(what: str) -> NoReturn:
    raise _NotACheckpointError(what)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        _refuse("there is no such file")
    except OSError as error:
        _refuse(f"cannot be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        _refuse(f"is larger than {MAX_BYTES >> 20} MiB, which no checkpoint of this engine is")
    return data


def _header(data: bytes) -> dict[str, Any]:
    """Name, dtype and shape of every tensor, and the metadata."""
    try:
        # Proves that the header is one and that the tensors fill the rest of the file, no more and no less.
        deserialize(data)
    except SafetensorError as error:
        _refuse(f"is no whole safetensors file: {error}")
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return header


def _json(metadata: Mapping[str, str], key: str) -> Any:
    if key not in metadata:
        _refuse(f"its metadata has no {key!r}; found: {', '.join(sorted(metadata))}")
    try:
        return json.loads(metadata[key])
    except ValueError as error:
        _refuse(f"{key!r} in its metadata is no JSON: {error}")


def _config(values: Any, *, name: str) -> ModelConfig:
    if not isinstance(values, dict):
        _refuse("'model' in its metadata is no JSON object")
    if missing := [field for field in MODEL_FIELDS if field not in values]:
        _refuse(f"'model' in its metadata lacks {', '.join(missing)}")
    if unknown := sorted(set(values) - set(MODEL_FIELDS)):
        _refuse(f"'model' in its metadata has {', '.join(unknown)}; allowed: {', '.join(MODEL_FIELDS)}")
    for field, value in values.items():
        _check_number(field, value)
    if values["num_q_heads"] % values["num_kv_heads"]:
        _refuse(
            f"num_q_heads {values['num_q_heads']} is no multiple of num_kv_heads {values['num_kv_heads']}"
        )
    if values["head_dim"] % 2:
        _refuse(f"head_dim {values['head_dim']} is odd; rotary positions turn pairs")
    return ModelConfig(name=name, **values)


def _check_number(field: str, value: Any) -> None:
    if field in _NUMBERS:
        if type(value) not in (int, float) or not 0 < value <= MAX_NUMBER:
            _refuse(f"{field} is {value!r:.25}; allowed: a number above 0, {MAX_NUMBER:g} or less")
    elif type(value) is not int or value < 1:
        _refuse(f"{field} is {value!r:.25}; allowed: a whole number, 1 or more")


def _tokenizer(words: Any, config: ModelConfig) -> WordTokenizer:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        _refuse("'words' in its metadata is something else than a list of texts")
    try:
        tokenizer = WordTokenizer(words)
    except UsageError as error:
        _refuse(str(error))
    if config.vocab_size != tokenizer.vocab_size:
        _refuse(
            f"vocab_size is {config.vocab_size}; {BYTE_VOCABULARY} bytes and marks and {len(words)} words "
            f"make {tokenizer.vocab_size}"
        )
    return tokenizer


def _check_tensors(found: Mapping[str, Mapping[str, Any]], config: ModelConfig) -> None:
    # Counted first: a wrong num_layers must not make a list that fills the memory.
    if config.num_layers > len(found):
        _refuse(f"num_layers is {config.num_layers}, but it holds {len(found)} tensors")
    shapes = tensor_shapes(config)
    for wrong, names in (("lacks", shapes.keys() - found.keys()), ("has also", found.keys() - shapes.keys())):
        if names:
            told = ", ".join(sorted(names)[:_MAX_TOLD])
            more = f" and {len(names) - _MAX_TOLD} more" if len(names) > _MAX_TOLD else ""
            _refuse(f"{wrong} tensors {told}{more}; a model of its shape has {len(shapes)}")
    for name, shape in shapes.items():
        if tuple(found[name]["shape"]) != shape:
            _refuse(f"tensor {name} has shape {found[name]['shape']}; its model makes it {list(shape)}")
        if found[name]["dtype"] not in FLOATS:
            _refuse(f"tensor {name} is of {found[name]['dtype']}; allowed: {', '.join(FLOATS)}")
