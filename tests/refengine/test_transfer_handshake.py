"""Which pairs are refused, with which words; what a peer tells of itself; and that docs/pd.md says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd_pairs import REFUSED, SUPPORTED, Pair, docs_table, shape_of

from harness.errors import UsageError
from harness.refengine.config import DisaggregationMode, EngineConfig, TransferBackend
from harness.refengine.transfer.handshake import EngineShape, refuse_pair
from harness.refengine.transfer.routes import routes

DOCS = Path(__file__).parents[2] / "docs" / "pd.md"
PREFILL, DECODE = Pair(shows="a healthy pair").shapes()


@pytest.mark.parametrize("transport", TransferBackend)
@pytest.mark.parametrize("pair", SUPPORTED, ids=lambda pair: pair.id)
def test_a_supported_pair_has_routes(pair: Pair, transport: TransferBackend) -> None:
    prefill, decode = pair.shapes(transport)
    assert refuse_pair(prefill, decode) is None
    assert {route.destination for route in routes(prefill, decode)} == set(range(decode.tp_size))


@pytest.mark.parametrize("transport", TransferBackend)
@pytest.mark.parametrize("pair", REFUSED, ids=lambda pair: pair.id)
def test_a_refused_pair_is_told_both_values_and_what_is_allowed(
    pair: Pair, transport: TransferBackend
) -> None:
    prefill, decode = pair.shapes(transport)
    assert pair.refused in str(refuse_pair(prefill, decode))
    with pytest.raises(UsageError) as refused:
        routes(prefill, decode)
    assert pair.refused in str(refused.value)


def test_the_docs_have_these_pairs_and_no_others() -> None:
    lines = DOCS.read_text().splitlines()
    begin, end = lines.index("<!-- pairs:begin -->"), lines.index("<!-- pairs:end -->")
    assert lines[begin + 1 : end] == docs_table()


def test_both_sides_need_one_transport() -> None:
    assert refuse_pair(replace(PREFILL, transport=TransferBackend.SHM), DECODE) == (
        "--disaggregation-transfer-backend is shm on the prefill side and tcp on the decode side; "
        "both must be the same"
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "said"),
    [
        (
            "decode",
            "prefill",
            ["the prefill side runs with --disaggregation-mode decode", "the decode side runs"],
        ),
        (
            "null",
            "decode",
            ["the prefill side runs with --disaggregation-mode null, but must run with prefill"],
        ),
        (
            "prefill",
            "null",
            ["the decode side runs with --disaggregation-mode null, but must run with decode"],
        ),
        ("prefill", "prefill", ["the decode side runs with --disaggregation-mode prefill"]),
    ],
)
def test_each_side_needs_its_own_mode(prefill: str, decode: str, said: list[str]) -> None:
    reason = refuse_pair(
        replace(PREFILL, mode=DisaggregationMode(prefill)), replace(DECODE, mode=DisaggregationMode(decode))
    )
    assert reason is not None
    assert reason.count("--disaggregation-mode") == len(said)
    assert all(each in reason for each in said)


@pytest.mark.parametrize("pair", [*SUPPORTED, *REFUSED], ids=lambda pair: pair.id)
def test_while_modes_are_wrong_nothing_is_said_of_who_deals_to_whom(pair: Pair) -> None:
    """Exchanged addresses, most likely: then the rule would be read the wrong way round."""
    prefill, decode = pair.shapes()
    for reason in (refuse_pair(decode, prefill), refuse_pair(prefill, prefill), refuse_pair(decode, decode)):
        assert reason is not None and "--disaggregation-mode" in reason
        assert "--dcp" not in reason and "--interleave" not in reason


def test_every_reason_is_told_at_once() -> None:
    other = replace(DECODE, dtype="bf16", page_size=32, num_layers=3, head_dim=8)
    reasons = str(refuse_pair(PREFILL, other)).split("; both must be the same")
    assert [reason.lstrip("; ").split(" is ")[0] for reason in reasons if reason] == [
        "--dtype",
        "--page-size",
        "the number of layers",
        "the size of a head",
    ]


def test_a_checkpoint_is_known_by_its_bytes_wherever_it_lies() -> None:
    here = shape_of(EngineConfig(model="builtin:sums-gqa", seed=3))
    assert here.seed is None and here.model_sha256 is not None
    prefill = replace(here, mode=DisaggregationMode.PREFILL, model="/elsewhere/sums.safetensors")
    decode = replace(here, mode=DisaggregationMode.DECODE)
    assert refuse_pair(prefill, decode) is None
    reason = refuse_pair(prefill, replace(decode, model_sha256="ab" * 32))
    assert reason is not None and here.model_sha256 in reason and "ab" * 32 in reason
    random = replace(decode, model="builtin:random-gqa", model_sha256=None, seed=0)
    assert "builtin:random-gqa of seed 0" in str(refuse_pair(prefill, random))


def test_random_weights_are_known_by_name_and_seed() -> None:
    other = replace(DECODE, model="builtin:another")
    assert "builtin:random-gqa of seed 0 on the prefill side and builtin:another of seed 0" in str(
        refuse_pair(PREFILL, other)
    )


@pytest.mark.parametrize("pair", SUPPORTED, ids=lambda pair: pair.id)
def test_a_shape_travels_as_json(pair: Pair) -> None:
    for shape in pair.shapes():
        assert EngineShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "both"}, "mode of an engine's shape is 'both'; allowed: null, prefill, decode"),
        ({"transport": ["tcp"]}, "transport of an engine's shape is ['tcp']; allowed: shm, tcp, nixl"),
        ({"dtype": "fp8"}, "dtype is 'fp8'; allowed: fp32, bf16"),
        ({"dtype": 16}, "dtype of an engine's shape is 16, but must be str"),
        ({"seed": "0"}, "seed of an engine's shape is '0', but must be int or NoneType"),
        ({"model": None}, "model of an engine's shape is None, but must be str"),
        ({"num_kv_heads": 0}, "num_kv_heads is 0, but must be an integer of at least 1"),
        ({"tp_size": 4.0}, "tp_size is 4.0, but must be an integer of at least 1"),
        ({"tp_size": 4, "dcp_size": 3}, "tp_size 4 is not divisible by dcp_size 3"),
        ({"interleave": 5}, "page_size 16 is not divisible by interleave 5"),
        ({"num_kv_heads": 3, "tp_size": 2}, "num_kv_heads 3 and the 2 head groups"),
        ({"pp_size": 2}, "the shape of an engine has an unknown pp_size"),
    ],
)
def test_an_odd_shape_is_refused_by_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        EngineShape.from_dict({**PREFILL.to_dict(), **change})
    assert said in str(refused.value)


def test_a_missing_field_is_named() -> None:
    told = PREFILL.to_dict()
    del told["interleave"]
    with pytest.raises(UsageError, match="the shape of an engine lacks interleave"):
        EngineShape.from_dict(told)
    with pytest.raises(UsageError, match="must be a mapping"):
        EngineShape.from_dict("prefill")
