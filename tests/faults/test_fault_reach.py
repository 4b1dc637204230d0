"""Where a fault breaks anything: elsewhere it is refused, save in a run, which looks at all its engines before."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from harness.engines import LaunchSpec, ReferenceEngine
from harness.faults import FAULTS, Fault
from harness.refengine.config import AttentionBackend, DisaggregationMode, EngineConfig
from harness.refengine.transfer.packing import PACK_ROWS, SOURCE_ROWS, TRANSFER_POSITIONS
from harness.topology import ParallelConfig

PATIENCE_S = 60.0
# Called where rows are packed, by prefill ranks alone.
OF_PREFILL = {PACK_ROWS, SOURCE_ROWS, TRANSFER_POSITIONS}


@pytest.mark.parametrize("mode", DisaggregationMode)
@pytest.mark.parametrize("backend", AttentionBackend)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.id)
def test_a_fault_needs_an_engine_that_calls_one_of_its_seams(
    fault: Fault, backend: AttentionBackend, mode: DisaggregationMode
) -> None:
    config = EngineConfig(attention_backend=backend, disaggregation_mode=mode)
    called = {
        seam
        for seam in fault.seams
        if not (seam in OF_PREFILL and mode is not DisaggregationMode.PREFILL)
        and not (seam.startswith("triton-") and backend is not AttentionBackend.TRITON)
    }
    assert (fault.needs(config) is None) == bool(called)


def test_a_run_plants_its_faults_in_engines_that_they_do_not_reach_too(tmp_path: Path) -> None:
    faults = ("pd-swap", "empty-split", "lse-base")
    spec = LaunchSpec(
        kind="reference",
        model="builtin:random-gqa",
        parallel=ParallelConfig(tp_size=2, dcp_size=2),
        faults=faults,
        launch_timeout_s=PATIENCE_S,
    )
    engine = ReferenceEngine.launch(spec, log=tmp_path / "log")
    try:
        with engine.client.deadline("this test", PATIENCE_S):
            told = httpx.get(f"{engine.client.url}/server_info", timeout=PATIENCE_S).json()
            assert told["faults"] == list(faults)
    finally:
        engine.stop()
