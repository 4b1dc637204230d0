"""What mutation testing needs of this room's tests: see docs/mutation.md."""

from __future__ import annotations

import sys

if trampoline := sys.modules.get("mutmut.mutation.trampoline"):
    # Each call of a changed function passes through frames of the tool; `reads.py`, which finds the caller of this
    # room by walking frames, is to take them for its own.
    vars(trampoline)["__name__"] = "harness.topology.mutmut"
