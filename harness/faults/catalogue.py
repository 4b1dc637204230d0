"""Every fault by id: what it breaks, where it was seen, and how it is planted.

The command line lists and names faults from here, so the modules that plant them (and torch with them) are
imported only by `Fault.install`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module

from harness.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One bug to plant. `seams` are the engine's functions it replaces, `source` the report that it is
    modelled on.

    `module` is a module of this package whose `install()` patches those seams.
    """

    id: str
    title: str
    source: str
    seams: tuple[str, ...]
    module: str

    def install(self) -> None:
        """Patch this process. Call before ranks are forked; faults on different seams may be combined."""
        import_module(f"harness.faults.{self.module}").install()


FAULTS: dict[str, Fault] = {
    fault.id: fault
    for fault in (
        Fault(
            id="lse-base",
            title="natural-log LSEs merged as base-2: exp2 where e is meant",
            source="sgl-project/sglang#33065",
            seams=("lse-weights",),
            module="lse_base",
        ),
        Fault(
            id="len-ceil",
            title="local length ceil(L / dcp) on every rank: one row past the shard is read",
            source="vllm-project/vllm#31166",
            seams=("local-kv-len",),
            module="len_ceil",
        ),
        Fault(
            id="owner-div",
            title="owner p // dcp where (p // interleave) % dcp is meant",
            source="vllm-project/vllm#51031",
            seams=("token-owner",),
            module="owner_div",
        ),
    )
}


def get_fault(fault_id: str) -> Fault:
    """The fault named `fault_id`; raises UsageError that lists near names, or all where none is near."""
    if fault_id in FAULTS:
        return FAULTS[fault_id]
    near = difflib.get_close_matches(fault_id, FAULTS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(FAULTS)}"
    raise UsageError(f"unknown fault {fault_id!r}; {hint}")
