"""Who reads the live topology, when, and from where.

`live.py` reports every read here while a recording is open; otherwise a read costs one look at an empty set.
Phases are those of the process: BEFORE_INIT until `install_parallel()`, LIVE until `uninstall_parallel()`,
TORN_DOWN after it. A recording knows only what happened during it: one that starts while nothing is installed
starts BEFORE_INIT. Inside `inject()` reads are LIVE. A read that raises is recorded and raises all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import TypeVar

from harness.errors import HarnessError

T = TypeVar("T")

# Frames of this package are how a read is answered, never who asked.
_ROOM = "harness.topology"


class Phase(StrEnum):
    """Where in the life of the live topology a read fell."""

    BEFORE_INIT = "before_init"
    LIVE = "live"
    TORN_DOWN = "torn_down"
    """After the topology was uninstalled; also a read that was refused outside its `inject()` block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One read and its call site. `error` names what it raised ("NoGroupError"); then `value` is None."""

    name: str
    value: object
    phase: Phase
    file: str
    line: int
    function: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRead:
    """A read before init whose answer was another one later: what the reader kept is wrong.

    A value that is the name of an error, such as "NoGroupError", stands for a read that raised it.
    """

    name: str
    value_then: object
    value_later: object
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line}: {self.function} read {self.name} before init: {self.value_then} then,"
            f" {self.value_later} later"
        )


class Recording:
    """What one `record_reads()` block has seen."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.saw_teardown = False


# Changed and copied by single calls only: they cannot be interrupted by another thread, nor by the collection of
# a generator that holds a block, which a lock could not survive.
recordings: set[Recording] = set()


@contextmanager
def record_reads() -> Iterator[list[Read]]:
    """Record every read of the live topology in this process, of all threads, in the order of their ends.

    `install_parallel()` reads once more, in the name of its caller, what was read before it: so an early read
    is found even where nobody asks again.
    """
    recording = Recording()
    recordings.add(recording)
    try:
        yield recording.reads
    finally:
        recordings.discard(recording)


def early_reads(reads: Sequence[Read]) -> list[EarlyRead]:
    """Each read before init that a later LIVE read of the same name contradicts, once per call site and value."""
    found: list[EarlyRead] = []
    for index, read in enumerate(reads):
        if (
            read.phase is Phase.BEFORE_INIT
            and (later := _contradicting(read, reads[index + 1 :])) is not None
        ):
            early = EarlyRead(
                name=read.name,
                value_then=_answer(read),
                value_later=_answer(later),
                file=read.file,
                line=read.line,
                function=read.function,
            )
            if early not in found:
                found.append(early)
    return found


def observe(name: str, answer: Callable[[], T], *, phase: Phase) -> T:
    """Answer a read of `name` and note it; called by `live.py` while a recording is open."""
    try:
        value = answer()
    except HarnessError as error:
        _note(name, None, phase, error=type(error).__name__)
        raise
    _note(name, value, phase)
    return value


def names_read_early() -> list[str]:
    """What was read before init, for `install_parallel()`, which reads it again."""
    early = (
        read.name
        for recording in recordings.copy()
        for read in recording.reads
        if read.phase is Phase.BEFORE_INIT
    )
    return list(dict.fromkeys(early))


def torn_down() -> None:
    """Called by `uninstall_parallel()`: until the next install, reads are late and not early."""
    for recording in recordings.copy():
        recording.saw_teardown = True


def _note(name: str, value: object, phase: Phase, *, error: str = "") -> None:
    site = _call_site()
    for recording in recordings.copy():
        late = phase is Phase.BEFORE_INIT and recording.saw_teardown
        recording.reads.append(
            Read(
                name=name,
                value=value,
                phase=Phase.TORN_DOWN if late else phase,
                file=site.f_code.co_filename,
                line=site.f_lineno,
                function=site.f_code.co_qualname,
                error=error,
            )
        )


def _call_site() -> FrameType:
    """The innermost frame outside this room; the outermost there is, should all be inside."""
    frame = sys._getframe()
    while _is_inside(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_inside(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module == _ROOM or module.startswith(f"{_ROOM}.")


def _contradicting(read: Read, later: Sequence[Read]) -> Read | None:
    for other in later:
        if other.phase is Phase.LIVE and other.name == read.name and _answer(other) != _answer(read):
            return other
    return None


def _answer(read: Read) -> object:
    return read.error or read.value
