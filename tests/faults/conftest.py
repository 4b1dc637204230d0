"""Faults are judged with the reference engine's own driver and oracle, which live beside its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.refengine import attention, layout_seams
from harness.refengine.seams import patch

sys.path.insert(0, str(Path(__file__).parents[1] / "refengine"))

# What stands behind the seams that faults replace: `seam` wraps it in a function that dispatches.
HEALTHY = {
    attention.LSE_WEIGHTS: attention.lse_weights.__wrapped__,
    layout_seams.LOCAL_KV_LEN: layout_seams.local_kv_len.__wrapped__,
    layout_seams.TOKEN_OWNER: layout_seams.token_owner.__wrapped__,
}


@pytest.fixture
def healthy_afterwards() -> Iterator[None]:
    """Whatever a test plants is taken out again: faults patch the whole process."""
    yield
    for name, function in HEALTHY.items():
        patch(name, function)
