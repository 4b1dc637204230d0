"""Checkpoint files: what is read from one, and everything that is refused with the file's name."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_files import WORDS, Arrays, make_random_checkpoint, metadata, model_config, random_tensors
from engine_process import PATIENCE_S, start
from safetensors.numpy import save_file

from harness.errors import UsageError
from harness.refengine import checkpoint
from harness.refengine.checkpoint import MODEL_FIELDS, read_checkpoint
from harness.refengine.config import EngineConfig
from harness.refengine.served_model import ServedModel, resolve_model
from harness.refengine.weights import model_weights

CONFIG = model_config()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small.safetensors"


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as refused:
        read_checkpoint(path, name="small")
    message = str(refused.value)
    assert message.startswith(f"checkpoint {path}: ")
    assert "\n" not in message
    return message


def test_a_checkpoint_is_shape_words_weights_and_hash(path: Path) -> None:
    config = replace(CONFIG, qk_scale=1.0, rope_theta=500.0, max_positions=640)
    tensors = random_tensors(config)
    make_random_checkpoint(path, config=config, tensors=tensors, changed={"training": "{}"})
    found = resolve_model(str(path))
    assert found.config == replace(config, name=str(path))
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.tokenizer.encode("apple")[1:] == [258 + WORDS.index("apple")]
    weights = model_weights(found, seed=0, dtype=torch.float32)
    assert torch.equal(weights.lm_head, torch.from_numpy(tensors["lm_head"]).float())
    last = weights.layers[1]
    for name in ("qkv", "o_proj", "gate_up", "down_proj"):
        assert torch.equal(getattr(last, name), torch.from_numpy(tensors[f"layers.1.{name}"]).float())


def test_weights_come_in_the_dtype_of_the_launch(path: Path) -> None:
    model = resolve_model(str(make_random_checkpoint(path)))
    weights = model_weights(model, seed=0, dtype=torch.bfloat16)
    exact = model_weights(model, seed=1, dtype=torch.float32)
    assert weights.embedding.dtype == weights.layers[0].qkv.dtype == torch.bfloat16
    assert torch.equal(weights.layers[0].qkv, exact.layers[0].qkv.bfloat16())


def test_a_random_model_has_no_checkpoint() -> None:
    model = resolve_model("builtin:random-gqa")
    assert (model.checkpoint, model.sha256) == (None, None)
    assert model.tokenizer.vocab_size == 258


@pytest.mark.parametrize("name", ["builtin:sums", "small", "safetensors", "model.safetensors.gz"])
def test_another_name_lists_the_names_there_are(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve_model(name)
    assert f"unknown model {name!r}; there are: builtin:random-gqa," in str(refused.value)
    assert str(refused.value).endswith("builtin:sums-gqa, and any file *.safetensors")


def spoiled(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_bytes(change(make_random_checkpoint(path).read_bytes()))

    return spoil


FILES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: None, "there is no such file"),
    (Path.mkdir, "cannot be read: Is a directory"),
    (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
    (lambda path: path.write_bytes(b""), "no whole safetensors file"),
    (lambda path: path.write_text("a" * 4000), "no whole safetensors file"),
    (spoiled(lambda data: data[:-1]), "no whole safetensors file"),
    (spoiled(lambda data: data[:100]), "no whole safetensors file"),
    (spoiled(lambda data: data + b"x"), "no whole safetensors file"),
]


@pytest.mark.parametrize(("make", "said"), FILES)
def test_what_is_no_whole_file_is_refused(make: Callable[[Path], Any], said: str, path: Path) -> None:
    make(path)
    assert said in refusal(path)


def test_a_file_made_for_another_engine_is_refused_by_its_size(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_random_checkpoint(path)
    monkeypatch.setattr(checkpoint, "MAX_BYTES", path.stat().st_size)
    assert read_checkpoint(path, name="small")
    monkeypatch.setattr(checkpoint, "MAX_BYTES", path.stat().st_size - 1)
    assert "is larger than 0 MiB" in refusal(path)


def shape_json(**changed: Any) -> str:
    values = {**json.loads(metadata(CONFIG)["model"]), **changed}
    return json.dumps({name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"format": "pt"}, "its format is 'pt'; allowed: 'harness-reference-1'"),
        ({"model": "{"}, "'model' in its metadata is no JSON: Expecting"),
        ({"model": "[1]"}, "'model' in its metadata is no JSON object"),
        ({"model": shape_json(ffn=None)}, "'model' in its metadata lacks ffn"),
        ({"model": shape_json(heads=8)}, "'model' in its metadata has heads; allowed: num_layers, hidden"),
        ({"model": shape_json(ffn="128")}, "ffn is '128'; allowed: a whole number, 1 or more"),
        ({"model": shape_json(hidden=64.0)}, "hidden is 64.0; allowed: a whole number"),
        ({"model": shape_json(num_layers=0)}, "num_layers is 0; allowed: a whole number, 1 or more"),
        ({"model": shape_json(num_layers=True)}, "num_layers is True; allowed: a whole number"),
        ({"model": shape_json(qk_scale=0)}, "qk_scale is 0; allowed: a number above 0"),
        ({"model": shape_json(norm_eps=float("nan"))}, "norm_eps is nan; allowed: a number above 0"),
        ({"model": shape_json(rope_theta=10**400)}, "rope_theta is 1000000000000000000000000; allowed"),
        ({"model": shape_json(num_kv_heads=3)}, "num_q_heads 8 is no multiple of num_kv_heads 3"),
        ({"model": shape_json(head_dim=15)}, "head_dim 15 is odd"),
        (
            {"model": shape_json(vocab_size=300)},
            "vocab_size is 300; 258 bytes and marks and 206 words make 464",
        ),
        ({"model": shape_json(num_layers=10**12)}, "num_layers is 1000000000000, but it holds 10 tensors"),
        ({"model": shape_json(num_layers=3)}, "lacks tensors layers.2.down_proj, layers.2.gate_up"),
        ({"model": shape_json(num_layers=1)}, "has also tensors layers.1.down_proj, layers.1.gate_up"),
        ({"model": shape_json(ffn=64)}, "layers.0.gate_up has shape [256, 64]; its model makes it [128, 64]"),
        ({"words": "apple"}, "'words' in its metadata is no JSON"),
        ({"words": '{"apple": 258}'}, "'words' in its metadata is something else than a list of texts"),
        ({"words": '["apple", 7]'}, "'words' in its metadata is something else than a list of texts"),
        ({"words": '["apple", "apple"]'}, "must be distinct"),
        ({"words": '["apple", ""]'}, "must be distinct and not empty"),
    ],
)
def test_wrong_metadata_says_what_is_allowed(changed: dict[str, str], said: str, path: Path) -> None:
    make_random_checkpoint(path, changed=changed)
    assert said in refusal(path)


@pytest.mark.parametrize("key", ["format", "model", "words"])
def test_missing_metadata_is_named(key: str, path: Path) -> None:
    save_file(random_tensors(CONFIG), path, metadata={k: v for k, v in metadata(CONFIG).items() if k != key})
    assert key in refusal(path)


def test_a_safetensors_file_of_somebody_else_has_no_format(path: Path) -> None:
    save_file(random_tensors(CONFIG), path)
    assert "its format is None; allowed: 'harness-reference-1'" in refusal(path)


def without(name: str) -> Callable[[Arrays], Any]:
    return lambda tensors: tensors.pop(name)


def with_tensor(name: str, array: np.ndarray[Any, Any]) -> Callable[[Arrays], Any]:
    return lambda tensors: tensors.update({name: array})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("lm_head"), "lacks tensors lm_head; a model of its shape has 10"),
        (with_tensor("layers.0.norm", np.ones(64, np.float16)), "has also tensors layers.0.norm"),
        (with_tensor("lm_head", np.ones((64, 464), np.float16)), "lm_head has shape [64, 464]; its model"),
        (with_tensor("lm_head", np.ones((464, 64), np.int8)), "lm_head is of I8; allowed: F16, BF16, F32"),
    ],
)
def test_wrong_tensors_are_named(change: Callable[[Arrays], Any], said: str, path: Path) -> None:
    tensors = random_tensors(CONFIG)
    change(tensors)
    make_random_checkpoint(path, tensors=tensors)
    assert said in refusal(path)


def test_the_fields_are_those_of_the_shape() -> None:
    """All but the name, which is the launch's, and the scale of weights that are not drawn."""
    assert set(MODEL_FIELDS) == set(asdict(CONFIG)) - {"name", "logit_scale"}


def test_no_torch_is_imported_to_refuse_a_launch(path: Path) -> None:
    make_random_checkpoint(path)
    program = (
        "import sys; from harness.refengine import launcher, served_model;"
        "served_model.resolve_model(sys.argv[1]); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("launch", "said"),
    [({}, "there is no such file"), ({"tp": 3, "dcp": 3}, "8 query heads, which tp 3 does not divide")],
)
def test_a_launch_is_refused_in_one_line(launch: dict[str, Any], said: str, path: Path) -> None:
    if launch:
        make_random_checkpoint(path)
    process = start(EngineConfig(model=str(path), **launch), stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


def test_a_model_is_what_its_checkpoint_says(path: Path) -> None:
    found = read_checkpoint(make_random_checkpoint(path), name="mine")
    assert ServedModel(config=found.config, checkpoint=found).tokenizer is found.tokenizer
    assert found.config.name == "mine"
