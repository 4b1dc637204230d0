"""The static scan of an engine's source for topology reads that should come from another source.

The way through: `load_rules` -> `scan` -> `judge` -> `text_lines`. Source is parsed and never imported. Importing this
room loads the suite language's YAML reader and nothing of an engine.
"""

from harness.ratchet.baseline import Baseline, Cell, Change, Increase, compare
from harness.ratchet.baseline_file import load_baseline, save_baseline
from harness.ratchet.rule_file import load_rules
from harness.ratchet.rules import Axis, Exemption, OnUnparsed, Place, Rules
from harness.ratchet.scanning import Exempted, Scan, scan
from harness.ratchet.sites import Category, Site, Unparsed
from harness.ratchet.statements import find_sites
from harness.ratchet.text import as_json, github_lines, text_lines
from harness.ratchet.verdict import Judgement, judge, updated

__all__ = [
    "Axis",
    "Baseline",
    "Category",
    "Cell",
    "Change",
    "Exempted",
    "Exemption",
    "Increase",
    "Judgement",
    "OnUnparsed",
    "Place",
    "Rules",
    "Scan",
    "Site",
    "Unparsed",
    "as_json",
    "compare",
    "find_sites",
    "github_lines",
    "judge",
    "load_baseline",
    "load_rules",
    "save_baseline",
    "scan",
    "text_lines",
    "updated",
]
