"""How fast `harness ratchet scan` is: files a second, and against parsing the same files and nothing else.

    python benchmarks/ratchet_scan.py PATH [--rules FILE]

Ratios only mean something: both sides run in one process on one core, one after the other, by its CPU time. The scan
parses too, but only files that may hold a read; so it is held against parsing those, and against parsing all.
"""

from __future__ import annotations

import argparse
import ast
import warnings
from pathlib import Path
from time import process_time

import harness.ratchet.scanning as scanning
from harness.ratchet import load_rules, scan
from harness.ratchet.files import find_tree
from harness.ratchet.prefilter import Prefilter

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rules", type=Path, default=ROOT / "configs" / "ratchet.yaml")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rules = load_rules(given.rules)
    tree = find_tree(given.path, rules)
    scanning.WORKERS = 1  # CPU time is counted for this process
    scanned, found = timed(lambda: scan(given.path, rules))
    sources = [(tree.root / file).read_bytes() for file in tree.files]
    prefilter = Prefilter.of(rules)
    parsed, _ = timed(lambda: parse_all([source for source in sources if prefilter.may_hold(source)]))
    parsed_all, _ = timed(lambda: parse_all(sources))
    print(f"{found.files:,} files, {found.parsed:,} of them parsed, {len(found.sites)} sites")
    print(f"{found.files / scanned:,.0f} files a second of one core")
    print(f"{scanned / parsed:.2f} times what parsing the same {found.parsed:,} files takes")
    print(f"{scanned / parsed_all:.2f} times what parsing all {found.files:,} files takes")


def parse_all(sources: list[bytes]) -> None:
    for source in sources:
        ast.parse(source)


def timed(work):  # type: ignore[no-untyped-def]
    began = process_time()
    answer = work()
    return process_time() - began, answer


if __name__ == "__main__":
    main()
