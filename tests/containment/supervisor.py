"""A supervisor to be killed. Run as a script: `supervisor.py MODE READY_FILE`, prints the tree's pids."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from harness.containment import choose_containment

HERE = Path(__file__).parent


def main(mode: str, ready_file: Path) -> None:
    tree = choose_containment(mode).spawn(
        [sys.executable, "-I", "-S", str(HERE / "nasty.py"), str(ready_file)],
        cwd=HERE,
        env=os.environ,
        stdout=2,
    )
    print(tree.pid, flush=True)
    sys.stdin.readline()  # the test says when the tree is complete
    print(json.dumps(tree.descendants()), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
