"""What a person sees while a model is trained, and the log that is kept. Rank 0 has one, other ranks none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Steps between two updates of the display.
_REFRESH = 10


class Report:
    """Progress on stderr, and the lines of the log: no times, so that two logs of the same run are equal."""

    def __init__(self, *, steps: int) -> None:
        self._lines: list[str] = []
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("step"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f} · solves {task.fields[share]:.1%}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._progress.add_task("training", total=steps, loss=0.0, share=0.0)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress bar inside the block, where stderr is a terminal."""
        with self._progress if self._console.is_terminal else self._nothing():
            yield

    @contextmanager
    def _nothing(self) -> Iterator[None]:
        yield

    def say(self, line: str) -> None:
        """One line for the log and the person."""
        self._lines.append(line)
        self._console.print(line, highlight=False, soft_wrap=True)

    def step(self, done: int, loss: float) -> None:
        if done % _REFRESH == 0:
            self._progress.update(self._task, completed=done, loss=loss)

    def look(self, done: int, loss: float, share: float) -> None:
        self._progress.update(self._task, share=share)
        self.say(f"step {done:5d}  loss {loss:.4f}  held-out problems solved {share:.1%}")

    def write(self, path: Path) -> None:
        path.write_text("\n".join([*self._lines, ""]))
