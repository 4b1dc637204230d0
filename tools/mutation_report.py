"""What `mutmut run` found, for `make mutation`: every mutant that the tests did not notice, and counts by module.

Fails where fewer than 95 % were noticed: docs/mutation.md lists the survivors that are known, with reasons.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

MUTMUT = [sys.executable, "-m", "mutmut"]
# A mutant that never ends, or ends its process, has been noticed as well.
NOTICED = ("killed", "timeout", "segfault")
# The bar of the project for this room.
BAR = 0.95


def main() -> int:
    found = [
        line.strip().rsplit(": ", 1)
        for line in mutmut("results", "--all", "true").splitlines()
        if ": " in line
    ]
    counts = Counter(status for _, status in found)
    if not counts:
        print("there are no results: mutmut run did not finish", file=sys.stderr)
        return 2
    noticed = sum(counts[status] for status in NOTICED)
    for name, status in found:
        if status not in (*NOTICED, "not checked"):
            print(f"{name}: {status}\n{mutmut('show', name)}")
    print_modules(found)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    share = noticed / len(found)
    print(f"{noticed} of {len(found)} mutants noticed = {share:.1%} ({told}); the bar is {BAR:.0%}")
    return 0 if share >= BAR else 1


def print_modules(found: list[list[str]]) -> None:
    """One line a module: how many of its mutants were noticed."""
    made = Counter(name.rpartition(".")[0] for name, _ in found)
    noticed = Counter(name.rpartition(".")[0] for name, status in found if status in NOTICED)
    for module, number in sorted(made.items()):
        print(f"{noticed[module]:5} of {number:4}  {module}")


def mutmut(*words: str) -> str:
    return subprocess.run([*MUTMUT, *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
