"""Where kernels run, and the faults that `--fault` asks for, planted in the process of the tests."""

from __future__ import annotations

import pytest

from harness.faults import get_fault
from harness.refengine.triton_kernels.loading import prepare_kernels


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """That of the profile: `cuda` for compiled kernels, `cpu` for the interpreter."""
    gpu = request.config.getoption("--harness-profile") == "gpu"
    prepare_kernels(cuda=gpu)
    return "cuda" if gpu else "cpu"


@pytest.fixture(scope="session")
def planted_faults(request: pytest.FixtureRequest) -> None:
    """Everything that `--harness-fault` names, for the rest of this process: it is one job, or a person's own."""
    for fault in request.config.getoption("--harness-fault"):
        get_fault(fault).install()
