"""What a build shows: each step with its time, and on a terminal a moving line for the one that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """Tells the steps of a build on a console; a pipe gets one plain line for each that is done."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        self._console.print(text, markup=False)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Around the work. A step that fails leaves its name to the error."""
        started = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        shown = self._console.is_terminal
        with Progress(*columns, console=self._console, transient=True, disable=not shown) as moving:
            moving.add_task(text)
            yield
        self.say(f"  {text}: {time.monotonic() - started:.0f} s")
