"""Which suites a command, a comment or a night means: globs over names, tags, a trigger.

Selection is a pure function of the catalogue: the order of patterns and suites changes nothing. Whatever
selects nothing raises `UsageError` with what there is, so that a typo never runs zero tests green.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from harness.errors import UsageError
from harness.suites.suite import Catalogue, Suite

# Three names fit on one line of a terminal.
_NEAR = 3


def select(
    catalogue: Catalogue, patterns: Sequence[str], *, tags: Iterable[str] = (), trigger: str | None = None
) -> list[Suite]:
    """The suites that match any pattern, bear all `tags`, and list `trigger`; by name, each once.

    A pattern is a glob over suite names (`*` crosses `/`) or an exact upstream name. Raises UsageError for a
    pattern without match, and when tags or trigger leave nothing.
    """
    if not patterns:
        raise UsageError("no pattern was given; allowed: globs over suite names, such as 'dcp/*'")
    chosen = {suite.name: suite for pattern in patterns for suite in _matching(catalogue, pattern)}
    named = [chosen[name] for name in sorted(chosen)]
    wanted = sorted(set(tags))
    tagged = [suite for suite in named if set(wanted) <= set(suite.tags)]
    if not tagged:
        have = ", ".join(sorted({tag for suite in named for tag in suite.tags})) or "none"
        raise UsageError(f"no selected suite has the tags {', '.join(wanted)}; tags there: {have}")
    triggered = [suite for suite in tagged if trigger is None or trigger in suite.triggers]
    if not triggered:
        have = ", ".join(sorted({name for suite in tagged for name in suite.triggers})) or "none"
        raise UsageError(f"no selected suite has the trigger {trigger!r}; triggers there: {have}")
    return triggered


def _matching(catalogue: Catalogue, pattern: str) -> list[Suite]:
    found = [
        suite
        for suite in catalogue.suites
        if fnmatchcase(suite.name, pattern) or (suite.upstream is not None and suite.upstream == pattern)
    ]
    if not found:
        raise UsageError(f"no suite matches {pattern!r}; {_near(catalogue, pattern)}")
    return found


def _near(catalogue: Catalogue, pattern: str) -> str:
    upstream = [suite.upstream for suite in catalogue.suites if suite.upstream]
    near = difflib.get_close_matches(pattern, [*catalogue.names, *upstream], n=_NEAR, cutoff=0.0)
    return f"near names: {', '.join(near)}" if near else f"{catalogue.root} holds no suite"
