"""Where each target builds DCP groups, by platform and release."""

from __future__ import annotations

from itertools import product

import pytest

from harness.errors import TopologyError
from harness.topology import ParallelConfig, Platform, require_platform

ON = ParallelConfig(tp_size=4, dcp_size=2)
OFF = ParallelConfig(tp_size=4, pp_size=2)
OLD, NEW = {"cuda", "hip"}, {"cuda", "hip", "npu", "xpu"}
ALLOWED = {
    "reference": {"cpu", "cuda", "hip", "npu", "xpu"},
    "sglang@0.5.9": OLD,
    "sglang@0.5.17": OLD,
    "sglang@0.5.18": OLD,
    "sglang@0.5.22": OLD,
    "sglang@0.5.23rc1": NEW,
    "sglang@0.5.23": NEW,
    "sglang@0.5.23.post1": NEW,
    "sglang@0.6": NEW,
    "sglang@main": NEW,
    "sglang@v0.5.18": OLD,
    "sglang@V0.5.9": OLD,
    "sglang@v0.5.23": NEW,
    "sglang@v0.5.23rc0": NEW,
    "sglang@version-0.5.18": NEW,
    "sglang@0065fbfae1d2": NEW,
    "sglang@0": NEW,
    "sglang": NEW,
}


@pytest.mark.parametrize(("target", "platform"), list(product(ALLOWED, Platform)))
def test_dcp_is_refused_where_the_target_cannot_build_it(target: str, platform: str) -> None:
    require_platform(OFF, platform=platform, target=target)
    if platform in ALLOWED[target]:
        require_platform(ON, platform=platform, target=target)
        return
    with pytest.raises(TopologyError) as refusal:
        require_platform(ON, platform=platform, target=target)
    allowed = ", ".join(sorted(ALLOWED[target]))
    assert str(refusal.value) == (
        f"dcp_size is 2, but {target} builds DCP groups on {allowed} only, not on {platform}"
    )


def test_what_nothing_is_known_of_is_refused() -> None:
    with pytest.raises(TopologyError) as refusal:
        require_platform(OFF, platform="tpu", target="sglang")
    assert str(refusal.value) == "there is no platform 'tpu'; there are cpu, cuda, hip, npu, xpu"
    with pytest.raises(TopologyError) as refusal:
        require_platform(OFF, platform=Platform.CUDA, target="vllm@0.11")
    assert str(refusal.value) == "nothing is known of target 'vllm@0.11'; there are reference, sglang"
