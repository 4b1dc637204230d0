"""Source with planted reads: `⟦direct dcp|server_args.dcp_size⟧` marks what a scan must find, and where."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

from harness.ratchet import Rules, Site, find_sites, load_rules

ROOT = Path(__file__).resolve().parents[2]
RULES = replace(load_rules(ROOT / "configs" / "ratchet.yaml"), exemptions=())

# category, axis, line, column
Found = tuple[str, str, int, int]
_MARK = re.compile(r"⟦(\w+) (\w+)\|(.*?)⟧", re.DOTALL)


def unmarked(marked: str) -> tuple[str, list[Found]]:
    """The source without its marks, and what they promise, in the order of the file."""
    text = dedent(marked).lstrip("\n")
    promised: list[Found] = []
    while mark := _MARK.search(text):
        line = text.count("\n", 0, mark.start()) + 1
        column = mark.start() - (text.rfind("\n", 0, mark.start()) + 1) + 1
        promised.append((mark[1], mark[2], line, column))
        text = text[: mark.start()] + mark[3] + text[mark.end() :]
    return text, promised


def sites_of(source: str, rules: Rules = RULES) -> list[Site]:
    return find_sites(ast.parse(source), file="engine.py", text=source, rules=rules)


def found_in(source: str, rules: Rules = RULES) -> list[Found]:
    sites = sites_of(source, rules)
    return [(site.category.value, site.axis, site.line, site.column) for site in sites]


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
