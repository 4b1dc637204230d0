"""Launch arguments: what is refused before any process starts, and the way to the other processes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import UsageError
from harness.refengine.config import EngineConfig


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"kv_bytes": 0}, "--kv-bytes is 0"),
        ({"chunked_prefill_size": -1}, "--chunked-prefill-size is -1"),
        ({"max_running_requests": 0}, "--max-running-requests is 0"),
        ({"dtype": "fp8"}, "--dtype is 'fp8'; allowed: fp32, bf16"),
        ({"port": 65536}, "--port is 65536"),
        ({"seed": 2**63}, "--seed is 9223372036854775808"),
        ({"seed": -(2**63)}, "--seed is -9223372036854775808"),
        ({"poison": math.nan}, "--poison is nan"),
        ({"poison": -math.inf}, "--poison is -inf"),
        ({"poison": 1e39}, "--poison is 1e+39"),
        ({"tp": 4, "dcp": 3}, "tp_size 4 is not divisible by dcp_size 3"),
        ({"page_size": 16, "interleave": 3}, "page_size 16 is not divisible by interleave 3"),
    ],
)
def test_a_bad_value_is_refused_by_its_flag(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        EngineConfig(**values)
    assert said in str(refused.value)


@pytest.mark.parametrize("values", [{"seed": 2**63 - 1}, {"seed": -1}, {"poison": -1e38}, {"poison": 0.0}])
def test_what_every_process_can_take_is_taken_and_travels(values: dict[str, Any]) -> None:
    config = EngineConfig(**values)
    assert EngineConfig.from_json(config.to_json()) == config
