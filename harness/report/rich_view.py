"""`RichView`: the live table of a run on a terminal: one row a job, redrawn four times a second.

The table is gone after `close()`, also after an interrupt: what stays on the screen is the summary. On a
screen with fewer lines than jobs it keeps what runs and what is red, and counts the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.report.board import Board, Lane
from harness.report.wording import VERDICT_LOOKS, WAITING, devices, duration, printable
from harness.verdict import AttemptRecord, CheckRecord, JobRecord, JobTicket, Verdict

# Redraws a second: fast enough to look alive, slow enough to cost nothing beside eight ranks on two cores.
_REFRESH_PER_S = 4

# Columns of what a job is doing, or why it ended as it did; half of it on a narrow screen.
_ACTIVITY_COLUMNS = 60

# Below this many columns the devices are left out: the name of a job matters more.
_WIDE = 100

# Lines that the table needs besides its rows: its foot, and the line that the cursor is on.
_EXTRA_LINES = 3

_CALM = (WAITING.word, VERDICT_LOOKS[Verdict.PASSED].word, VERDICT_LOOKS[Verdict.SKIPPED].word)


class RichView:
    """Implements `verdict.LiveView` for a person at a terminal."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = Board(clock)
        self._console = console
        self._live = Live(
            get_renderable=self.render,
            console=console,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
        )

    def run_started(self, jobs: Sequence[JobTicket]) -> None:
        self._board.announce(jobs)
        self._live.start(refresh=True)

    def job_started(self, job_id: str, *, attempt: int, node: str, devices: Sequence[str]) -> None:
        self._board.start(job_id, attempt=attempt, devices=devices)

    def check_finished(self, job_id: str, check: CheckRecord) -> None:
        self._board.check(job_id, check)

    def attempt_finished(self, job_id: str, attempt: AttemptRecord) -> None:
        """The table shows jobs only; an attempt is seen in the row of its job."""

    def job_finished(self, job: JobRecord) -> None:
        self._board.finish(job)

    def close(self) -> None:
        self._live.stop()

    def render(self) -> RenderableType:
        """The table as it stands now."""
        wide = self._console.width >= _WIDE
        table = Table.grid(padding=(0, 2, 0, 0))
        # on a narrow screen rich shortens the two columns that may wrap, and their cells end in an ellipsis
        table.add_column()
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(max_width=_ACTIVITY_COLUMNS if wide else _ACTIVITY_COLUMNS // 2)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim")
        for lane in self._shown():
            cells = self._cells(lane)
            table.add_row(*(cells if wide else cells[:-1]))
        return Group(table, self._foot())

    def _shown(self) -> list[Lane]:
        lanes = self._board.lanes
        room = max(1, self._console.height - _EXTRA_LINES)
        if len(lanes) <= room:
            return lanes
        return [lane for lane in lanes if lane.look.word not in _CALM][:room]

    def _cells(self, lane: Lane) -> list[Text]:
        ticket = lane.ticket
        name = ticket.id.replace(f"@{ticket.profile}", "")
        again = f" ({lane.attempt})" if lane.attempt > 1 else ""
        tone = "red" if lane.red_checks else "" if lane.running else "dim"
        return [
            _one_line(f"{lane.look.glyph} {name}", style=lane.look.style),
            Text(ticket.profile, style="dim"),
            Text(lane.look.word + again, style=lane.look.style),
            _one_line(lane.activity, style=tone),
            Text(duration(self._board.elapsed(lane)) if lane.running or lane.seconds else ""),
            Text(devices(lane.devices) if lane.running else ""),
        ]

    def _foot(self) -> Text:
        counts = [(f"{count} {look.word}", look.style) for look, count in self._board.counts()]
        foot = Text("  ")
        for text, style in counts:
            foot.append(text, style=style).append("  ")
        return foot.append(duration(self._board.run_seconds), style="dim")


def _one_line(text: str, *, style: str) -> Text:
    return Text(printable(text.replace("\n", " ")), style=style, no_wrap=True, overflow="ellipsis")
