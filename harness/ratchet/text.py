"""A scan in words: for a terminal, for scripts, and for the annotations of a GitHub workflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.ratchet.baseline import Change
from harness.ratchet.rules import Rules
from harness.ratchet.sites import Category, Site
from harness.ratchet.verdict import Judgement


def shown_path(root: Path, file: str) -> str:
    """A file as an editor or GitHub opens it from here: relative to this folder where it lies below it."""
    path = root / file
    absolute, here = path.absolute(), Path.cwd()
    return (absolute.relative_to(here) if absolute.is_relative_to(here) else path).as_posix()


def text_lines(judgement: Judgement, rules: Rules) -> Iterator[str]:
    """The report: sites by axis, what exempted ones are for, what could not be read, totals, changes."""
    scan = judgement.scan
    for axis in rules.axes:
        for category in Category:
            for site in scan.sites:
                if (site.axis, site.category) == (axis.name, category):
                    yield _site_line(scan.root, site)
    for each in scan.unparsed:
        yield f"{shown_path(scan.root, each.file)}:{each.line}:{each.column} unparsed {each.why}"
    yield from _totals(judgement, rules)
    yield from _change_lines(judgement)


def _site_line(root: Path, site: Site) -> str:
    place = f"{shown_path(root, site.file)}:{site.line}:{site.column}"
    return f"{place} {site.axis} {site.category.told} {site.words} -> should read {site.instead}"


def _totals(judgement: Judgement, rules: Rules) -> Iterator[str]:
    scan = judgement.scan
    counts = Counter((site.axis, site.category) for site in scan.sites)
    for axis in rules.axes:
        numbers = " / ".join(f"{each.told} {counts[axis.name, each]}" for each in Category)
        yield f"{axis.name}: {numbers}"
    unread = f", {len(scan.unparsed)} not read" if scan.unparsed else ""
    idle = f" ({len(scan.idle)} places of exemptions hold none)" if scan.idle else ""
    yield f"{scan.files:,} files, {scan.parsed:,} parsed{unread}; {len(scan.exempted)} reads exempt{idle}"


def _change_lines(judgement: Judgement) -> Iterator[str]:
    for change in judgement.changes:
        yield f"{_word(change)} {change}"
        for site in change.new:
            yield f"  new  {_site_line(judgement.scan.root, site)}"
        for file, key in change.gone:
            yield f"  gone {shown_path(judgement.scan.root, file)} {key}"
    if judgement.shrank and not judgement.grew:
        yield "fewer than the baseline allows: run --update to keep it so"
    elif judgement.changes and not judgement.grew:
        yield "as many as the baseline allows, in other places: run --update to record them"


def _word(change: Change) -> str:
    return "more" if change.grew else "fewer" if change.shrank else "moved"


def as_json(judgement: Judgement, rules: Rules) -> dict[str, Any]:
    """The document of `--json`."""
    scan = judgement.scan
    counts = Counter((site.axis, site.category) for site in scan.sites)
    return {
        "schema": 1,
        "root": str(scan.root),
        "files": scan.files,
        "parsed": scan.parsed,
        "totals": {
            axis.name: {each.value: counts[axis.name, each] for each in Category} for axis in rules.axes
        },
        "sites": [_site_json(site) for site in scan.sites],
        "exempt": [_site_json(each.site) | {"reason": each.reason} for each in scan.exempted],
        "idle": [{"place": str(each), "at": str(each.mark)} for each in scan.idle],
        "unparsed": [
            {"file": each.file, "line": each.line, "column": each.column, "why": each.why}
            for each in scan.unparsed
        ],
        "changes": [
            {
                "axis": change.cell.axis,
                "category": change.cell.category.value,
                "before": change.before,
                "after": change.after,
                "new": [_site_json(site) for site in change.new],
                "gone": [{"file": file, "site": key} for file, key in change.gone],
            }
            for change in judgement.changes
        ],
        "exit_code": judgement.exit_code,
    }


def _site_json(site: Site) -> dict[str, Any]:
    return {
        "file": site.file,
        "line": site.line,
        "column": site.column,
        "axis": site.axis,
        "category": site.category.value,
        "function": site.function,
        "expression": site.expression,
        "kept_as": site.kept_as or None,
        "instead": site.instead,
    }


def github_lines(judgement: Judgement, rules: Rules, *, baseline: bool) -> Iterator[str]:
    """Workflow commands. With a baseline, errors at the new sites of numbers that grew and nothing else: a pull
    request is told of what it did. Without one, a warning at every site."""
    scan = judgement.scan
    for each in scan.unparsed:
        level = "error" if judgement.unparsed_fail else "warning"
        yield _command(level, scan.root, each.file, each.line, each.column, "not scanned", each.why)
    level = "error" if baseline else "warning"
    for site in (new for change in judgement.grew for new in change.new) if baseline else scan.sites:
        title = f"topology read: {site.axis} {site.category.told}"
        words = f"{site.words} should read {site.instead}"
        yield _command(level, scan.root, site.file, site.line, site.column, title, words)
    for change in judgement.grew:
        yield f"::error title=topology ratchet::{_data(f'{change}: more than the baseline allows')}"
    if judgement.shrank and not judgement.grew:
        numbers = ", ".join(map(str, judgement.shrank))
        yield f"::notice title=topology ratchet::{_data(f'{numbers}: run --update to keep it so')}"
    yield from _totals(judgement, rules)


def _command(level: str, root: Path, file: str, line: int, column: int, title: str, words: str) -> str:
    place = f"file={_property(shown_path(root, file))},line={line},col={column},title={_property(title)}"
    return f"::{level} {place}::{_data(words)}"


def _data(text: str) -> str:
    """GitHub takes these three as its own in what a command says."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """And these two more in its properties."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
