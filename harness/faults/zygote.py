"""Entry point of an engine with faults: `python -m harness.faults.zygote --fault ID [--fault ID] REST...`.

It plants the faults in the zygote, before ranks are forked and so the same in each, and then becomes the
engine's own zygote with the rest of the arguments. The engine learns the faults' names only to report them.
An unknown fault ends the process with exit code 2 before anything starts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from harness.errors import UsageError
from harness.faults.catalogue import get_fault


def main(argv: Sequence[str]) -> int:
    """Install the faults named in `argv`, then run the zygote; returns its exit code."""
    parser = argparse.ArgumentParser(prog="harness.faults.zygote", allow_abbrev=False)
    parser.add_argument("--fault", action="append", required=True, metavar="ID", dest="faults")
    options, rest = parser.parse_known_args(argv)
    try:
        faults = [get_fault(fault_id) for fault_id in options.faults]
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for fault in faults:
        fault.install()
    # Imported late: an unknown fault is told before torch is paid for.
    from harness.refengine import zygote

    return zygote.main(rest, faults=options.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
