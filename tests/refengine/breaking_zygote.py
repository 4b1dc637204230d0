"""A zygote whose ranks fail in the thread that sends KV, not in their step loop."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from harness.refengine import zygote
from harness.refengine.seams import patch
from harness.refengine.transfer.packing import PACK_ROWS


def break_down(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("no rows today")


if __name__ == "__main__":
    patch(PACK_ROWS, break_down)
    sys.exit(zygote.main(sys.argv[1:], faults=["broken"]))
