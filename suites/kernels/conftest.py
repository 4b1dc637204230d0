"""Where kernels run, and the faults that `--fault` asks for, planted in the process of the tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.errors import UsageError
from harness.faults import get_fault
from harness.refengine.triton_kernels.installed import require_triton
from harness.refengine.triton_kernels.loading import prepare_kernels


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One error for a file whose kernels cannot run, not one for each of its tests."""
    if "device" in metafunc.fixturenames:
        try:
            require_triton()
        except UsageError as error:
            raise pytest.Collector.CollectError(str(error)) from None


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """That of the profile: `cuda` for compiled kernels, `cpu` for the interpreter."""
    gpu = request.config.getoption("--harness-profile") == "gpu"
    prepare_kernels(cuda=gpu)
    return "cuda" if gpu else "cpu"


@pytest.fixture(scope="session")
def planted_faults(request: pytest.FixtureRequest, report_planted: Callable[[str], None]) -> None:
    """Everything that `--harness-fault` names, for the rest of this process: it is one job, or a person's own."""
    for fault in request.config.getoption("--harness-fault"):
        get_fault(fault).install()
        report_planted(fault)
