"""The faults that tests of a suite can plant, by id.

`faults` is no import of this room: a test holds this list equal to its catalogue. So a mistyped id is found where it
was written, and an editor knows them all.
"""

from __future__ import annotations

from harness.suites.wording import show, suggest

# As in the catalogue, in its order.
OF_CODE = (
    *("lse-base", "lse-log2", "lse-bf16", "lse-unscaled", "lse-stride", "empty-shard", "out-bf16"),
    *("merge-max", "merge-mean", "merge-skipped"),
    *("len-ceil", "len-stale", "partial-page", "shard-lost", "interleave-reader", "prefix-order"),
    *("owner-div", "owner-rotated", "owner-page", "write-all", "pad-slot", "free-partial"),
    *("ps-early", "head-order", "kv-head-mod", "kv-head-tp", "rope-local"),
    *("empty-split", "stride"),
)
# These break what one engine hands to another: no function on its own shows them.
OF_PAIRS = ("pd-swap", "pd-contiguous", "pd-lost-page", "pd-shift")


def check_fault(name: str) -> str:
    """The id; ValueError where there is no such fault, or where it takes a pair of engines."""
    if name in OF_PAIRS:
        raise ValueError(
            f"{show(name)} breaks what a prefill engine hands to a decode engine, and tests have no engines; "
            f"allowed: {', '.join(OF_CODE)}"
        )
    if name not in OF_CODE:
        raise ValueError(f"{show(name)} is unknown{suggest(name, OF_CODE)}")
    return name
