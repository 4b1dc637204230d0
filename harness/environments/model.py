"""What an engine's environment and an engine's source are, as values; every other room reads only these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, UsageError

# The one engine that needs an environment of its own today; it is also a name in `python:` of a suite.
SGLANG = "sglang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was tried in an environment when it was built: modules that were to import, those that did, and
    how long the lot took in a cold process."""

    imported: tuple[str, ...]
    failed: dict[str, str]
    seconds: float


@dataclass(frozen=True)
class Environment:
    """A finished virtual environment. `python` starts it, `package` is the folder that holds `sglang/`.

    An environment with the dependencies alone (made for a source) has version "" and no package in `package`.
    """

    name: str
    engine: str
    version: str
    python: Path
    package: Path
    generation: str = ""
    transformers: str = ""
    python_version: str = ""
    proof: Proof | None = None

    @property
    def has_package(self) -> bool:
        """False for one that holds the dependencies alone and needs a source on PYTHONPATH."""
        return bool(self.version)


@dataclass(frozen=True)
class EngineSource:
    """A source tree of an engine: what to put on PYTHONPATH, and what it is.

    `root` is the checkout, or the folder that holds the package where there is no checkout. `commit` is None
    where the tree is not under git; `digest` names the code in any case.
    """

    root: Path
    package_root: Path
    version: str | None
    commit: str | None
    digest: str


class EnvironmentMissingError(UsageError):
    """No environment has what was asked for; `command` makes one."""

    def __init__(self, engine: str, what: str, *, command: str) -> None:
        self.engine = engine
        self.command = command
        super().__init__(f"{what}; make it with: {command}")


class EnvironmentBuildError(HarnessError):
    """An environment could not be built. `detail` holds the last lines of what failed; nothing was left behind
    that looks finished."""

    exit_code = 3

    def __init__(self, message: str, *, detail: str = "") -> None:
        self.detail = detail
        super().__init__(f"{message}\n{detail}" if detail else message)
