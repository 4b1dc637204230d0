"""The one error tree. Leaves carry facts, so that a report never has to parse a message.

Every command turns a `HarnessError` into one line on stderr and its `exit_code`; anything
else that escapes is a bug of harness itself and keeps its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class HarnessError(Exception):
    """Base of everything that harness raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(HarnessError):
    """The user asked for something that cannot be: a wrong name, flag, file or value."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a source file; line and column count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SourceError(UsageError):
    """A file that a person wrote is wrong at one place: says where, what was found, what is allowed."""

    def __init__(self, mark: Mark, message: str, *, field: str = "") -> None:
        self.mark = mark
        self.field = field
        self.message = message
        super().__init__(f"{mark}: {field}: {message}" if field else f"{mark}: {message}")


class SourceErrors(UsageError):
    """Several `SourceError`s of one load, so that a user mends them in one go."""

    def __init__(self, errors: list[SourceError]) -> None:
        self.errors = errors
        super().__init__("\n".join(str(error) for error in errors))


class TopologyError(UsageError, ValueError):
    """A topology that cannot be built, or sources of it that contradict each other."""


class NoGroupError(TopologyError):
    """Live topology was read loudly where no process group is installed."""


class InjectionError(TopologyError):
    """The shim was asked for what it cannot fake, or used outside its block or thread."""


class UnknownNameError(TopologyError, AttributeError):
    """A live topology or a mock worker was asked for a name that it does not have; `nearest` is one it has.

    An AttributeError too, so that `hasattr` and `getattr` with a default mean what they mean elsewhere.
    """

    def __init__(self, message: str, *, nearest: str | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


class UnansweredReadError(TopologyError):
    """A mock worker was asked for a number of the topology where it does not carry it; `nearest` is where it does.

    No AttributeError: `getattr` with a default would answer in its place, and a test pass for the wrong reason.
    """

    def __init__(self, message: str, *, nearest: str | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


class EngineError(HarnessError):
    """An engine did not do its work. `detail` holds its last log lines."""

    def __init__(self, message: str, *, detail: str = "") -> None:
        self.detail = detail
        super().__init__(message)


class EngineLaunchError(EngineError):
    """The engine never became ready."""


class EngineDiedError(EngineError):
    """The engine (a rank, its HTTP front or its launcher) ended while it was needed."""


class NoAnswerError(EngineDiedError):
    """Nothing listens where an engine was asked: it has ended, or never was there."""


class HandoverError(EngineError):
    """Of a request that two engines share, the other one cannot be reached, has ended, gave it up or did not move."""


class RequestRefusedError(EngineError):
    """The engine answered a request with an error status."""

    def __init__(self, message: str, *, status: int, detail: str = "") -> None:
        self.status = status
        super().__init__(message, detail=detail)


class DeadlineError(HarnessError):
    """A named deadline passed. `scope` is the innermost one that fired: `launch`, `check parity`, `job`;
    `progress` says how far the work had come, where that is known."""

    def __init__(self, scope: str, seconds: float, *, progress: str = "") -> None:
        self.scope = scope
        self.seconds = seconds
        super().__init__(f"deadline '{scope}' of {seconds:g} s passed {progress}".rstrip())


class InfraError(HarnessError):
    """The machine, not the code under test, is at fault; `probe` names the typed probe that proved it."""

    exit_code = 3

    def __init__(self, probe: str, message: str) -> None:
        self.probe = probe
        super().__init__(f"{probe}: {message}")
