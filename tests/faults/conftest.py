"""Faults are judged with the reference engine's own driver and oracle, which live beside its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.refengine import attention, layout_seams, seams, step_plan, worker_state
from harness.refengine.transfer import packing
from harness.refengine.triton_kernels import backend, calls

sys.path.insert(0, str(Path(__file__).parents[1] / "refengine"))

# What stands behind the seams before any test plants a fault; importing these modules registers them all.
assert attention and layout_seams and step_plan and worker_state and packing
assert backend and calls
HEALTHY = dict(seams._IMPLEMENTATIONS)


@pytest.fixture
def healthy_afterwards() -> Iterator[None]:
    """Whatever a test plants is taken out again: faults patch the whole process."""
    yield
    for name, function in HEALTHY.items():
        seams.patch(name, function)
