"""What the tests of the suite language share: a small right suite, and reading back what a wrong one says."""

from __future__ import annotations

from pathlib import Path

from harness.errors import SourceError, SourceErrors
from harness.suites import Suite, load_suite

DATA = Path(__file__).parent / "data"
REPOSITORY = Path(__file__).parents[2]

# Lines are counted from 1; tests that name a line rely on this layout.
GOOD = """\
summary: a small suite
profiles:
  cpu:
    needs: {cpu: 1}
    estimate: 30s
    timeout: 5m
    engine: {kind: reference, model: builtin:random-gqa, parallel: {tp: 4, dcp: 4}, args: {page-size: 16}}
checks:
  - drained: {}
"""


def write(folder: Path, text: str, name: str = "x.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, text: str) -> Suite:
    return load_suite(write(folder, text), root=folder)


def errors_of(folder: Path, text: str) -> list[SourceError]:
    """Everything that is wrong with `text`; empty when it loads."""
    try:
        load(folder, text)
    except SourceErrors as found:
        return found.errors
    return []


def only_error(folder: Path, text: str) -> SourceError:
    errors = errors_of(folder, text)
    assert len(errors) == 1, "\n".join(map(str, errors))
    return errors[0]


def place(error: SourceError) -> tuple[int, int]:
    return error.mark.line, error.mark.column


def text_at(error: SourceError) -> str:
    """The rest of the line that an error points at."""
    line = error.mark.file.read_text(encoding="utf-8").splitlines()[error.mark.line - 1]
    return line[error.mark.column - 1 :]
