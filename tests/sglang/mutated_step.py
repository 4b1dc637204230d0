"""Run in an SGLang environment: breaks an MLA backend's lengths in one way after the other and runs `dcp/mla_metadata`.

Prints, per mutation, which tests failed. Each replaces something from outside and is undone before the next; the
first, `none`, breaks nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["TRITON_INTERPRET"] = "1"  # before the package compiles a kernel

import pytest
import sglang.srt.layers.dcp.layout as layout

from harness.topology.targets.step import step_target

SUITE = Path(__file__).resolve().parents[2] / "suites" / "dcp" / "mla_metadata.yaml"
BACKEND: Any = vars(step_target("sglang"))["_kind"]
LOCAL = "_get_dcp_local_seq_lens"

Patch = tuple[object, str, object]


def local_rounds_up() -> Patch:
    return BACKEND, LOCAL, lambda self, lens: (lens + 1) // 2


def local_is_global() -> Patch:
    return BACKEND, LOCAL, lambda self, lens: lens


def local_of_the_first_rank() -> Patch:
    module = sys.modules[BACKEND.__module__]
    real = layout.get_dcp_lens
    return (
        module,
        "get_dcp_lens",
        lambda lens, size, rank, *more, **named: real(lens, size, 0, *more, **named),
    )


def bound_may_be_zero() -> Patch:
    real = BACKEND._get_dcp_local_max_seq_len
    return (
        BACKEND,
        "_get_dcp_local_max_seq_len",
        lambda self, length: 0 if length == 1 else real(self, length),
    )


def draft_is_added_twice() -> Patch:
    """To what each step starts from, so that a verify step has too many and a decode step some."""
    name = "_apply_cuda_graph_metadata"
    real = getattr(BACKEND, name)

    def apply(self: Any, **named: Any) -> None:
        real(self, **{**named, "seq_lens": named["seq_lens"] + self.num_draft_tokens})

    return BACKEND, name, apply


def draft_is_forgotten() -> Patch:
    """By a replay: a verify step has the lengths of its prefixes."""
    name = "_apply_cuda_graph_metadata"
    real = getattr(BACKEND, name)

    def apply(self: Any, **named: Any) -> None:
        kept, self.num_draft_tokens = self.num_draft_tokens, 0
        real(self, **named)
        self.num_draft_tokens = kept

    return BACKEND, name, apply


def buffers_are_replaced() -> Patch:
    """The numbers are right, and stand in memory that no graph has captured."""
    name = "_apply_cuda_graph_metadata"
    real = getattr(BACKEND, name)

    def apply(self: Any, **named: Any) -> None:
        captured = self.decode_cuda_graph_metadata[named["bs"]]
        captured.seq_lens_k = captured.seq_lens_k.clone()
        real(self, **named)

    return BACKEND, name, apply


def padding_keeps_what_was_there() -> Patch:
    """A replay of a smaller batch writes its own rows alone."""
    name = "_apply_cuda_graph_metadata"
    real = getattr(BACKEND, name)

    def apply(self: Any, **named: Any) -> None:
        captured = self.decode_cuda_graph_metadata[named["bs"]]
        before = captured.seq_lens_k.clone()
        real(self, **named)
        padding = named["seq_lens"] == 1
        captured.seq_lens_k[padding] = before[padding]

    return BACKEND, name, apply


MUTATIONS: list[Callable[[], Patch]] = [
    local_rounds_up,
    local_is_global,
    local_of_the_first_rank,
    bound_may_be_zero,
    draft_is_added_twice,
    draft_is_forgotten,
    buffers_are_replaced,
    padding_keeps_what_was_there,
]


class Results:
    """What failed in one run."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2].partition("[")[0])
        elif report.when == "call":
            self.passed += report.passed


def run() -> dict[str, Any]:
    results = Results()
    # By module and never by entry point: an editable install leaves one in the checkout, which is on the path here.
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    options = ["-q", "--no-header", "--tb=no", *plugins, "--harness-target", "sglang"]
    code = pytest.main([str(SUITE), *options], plugins=[results])
    return {"exit": int(code), "failed": sorted(set(results.failed)), "passed": results.passed}


def main() -> None:
    seen = {"none": run()}
    for mutation in MUTATIONS:
        with patch.object(*mutation()):
            seen[mutation.__name__] = run()
    sys.stdout.flush()
    print(f"\nSEEN {json.dumps(seen)}", flush=True)


if __name__ == "__main__":
    main()
