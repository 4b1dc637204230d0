"""Which live view a console gets: a table for a person at a terminal, lines for everything else."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rich.console import Console

from harness.report.plain_view import PlainView
from harness.report.rich_view import RichView
from harness.verdict import LiveView

# CI services set CI to some truth; a person who exports CI=false means what it says.
_FALSE = frozenset({"", "0", "false", "no", "off"})


def choose_view(console: Console, *, environ: Mapping[str, str] = os.environ) -> LiveView:
    """A `RichView` only where a cursor can move: no pipe (even with FORCE_COLOR), no dumb terminal, no CI."""
    in_ci = environ.get("CI", "").strip().lower() not in _FALSE
    # the file itself is asked: FORCE_COLOR makes rich call a pipe a terminal
    moves = console.file.isatty() and console.is_terminal and not console.is_dumb_terminal
    return RichView(console) if moves and not in_ci else PlainView(console)
