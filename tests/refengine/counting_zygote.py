"""A zygote with a wrapper put around every communicator from outside; it counts calls on its own.

After each call a rank writes its counts, as JSON, to the file `$COUNTS_DIR/<tp rank>.json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from harness.refengine import comm, zygote
from harness.refengine.comm import Comms
from harness.refengine.seams import patch

KINDS = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "broadcast_bytes": "broadcast",
    "barrier": "barrier",
}


class Counted:
    """Passes everything on, and counts the verbs that came back."""

    def __init__(self, inner: Any, told: dict[str, Counter[str]], file: Path) -> None:
        self._inner = inner
        self._told = told
        self._file = file

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in KINDS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            self._told[self._inner.name][KINDS[name]] += 1
            partial = self._file.with_suffix(".part")
            partial.write_text(json.dumps(self._told))
            partial.replace(self._file)
            return result

        return call


def counted_communicators(config: Any, *, rank: int, plumbing: Any) -> Any:
    comms = plumbing.connect(rank)
    told: dict[str, Counter[str]] = {"tp": Counter(), "dcp": Counter()}
    file = Path(os.environ["COUNTS_DIR"]) / f"{rank}.json"
    tp, dcp = (Counted(inner, told, file) for inner in (comms.tp, comms.dcp))
    return Comms(tp=tp, dcp=dcp)  # type: ignore[arg-type]


if __name__ == "__main__":
    assert comm.make_communicators
    patch("make-communicators", counted_communicators)
    sys.exit(zygote.main(sys.argv[1:], faults=["counted"]))
