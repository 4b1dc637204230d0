"""A loaded suite, and the catalogue of them: plain values, valid by construction.

The loader builds these; selection, planning and reports read them. What names a suite (summary, tags, ...) is
the same at every matrix point, so the first point answers for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.suites.check_list import CheckSpec
from harness.suites.matrix import MatrixValue
from harness.suites.model import Profile, ProfileName, Skip, SuiteFile
from harness.suites.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePoint:
    """A suite at one matrix point: the file's values, and the checks of each profile it has."""

    matrix: Mapping[str, MatrixValue]
    file: SuiteFile
    checks: Mapping[ProfileName, tuple[CheckSpec, ...]]
    tests: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """One YAML file; `name` is its path below the root without suffix, `points` is never empty."""

    name: str
    path: Path
    points: tuple[SuitePoint, ...]

    @property
    def file(self) -> SuiteFile:
        """The file at its first matrix point."""
        return self.points[0].file

    @property
    def summary(self) -> str:
        return self.file.summary

    @property
    def owners(self) -> tuple[str, ...]:
        return self.file.owners

    @property
    def tags(self) -> tuple[str, ...]:
        return self.file.tags

    @property
    def triggers(self) -> tuple[str, ...]:
        return self.file.triggers

    @property
    def upstream(self) -> str | None:
        """The test of the engine's repository that this suite stands for; selection accepts it as a name."""
        return self.file.upstream

    @property
    def targets(self) -> tuple[Target, ...]:
        """What its tests can look at; the first is the default."""
        return self.file.all_targets

    @property
    def profiles(self) -> dict[ProfileName, Profile]:
        return self.file.profiles.by_name()

    @property
    def skip(self) -> Skip | None:
        """The declared skip, expired or not; jobs carry it only while it holds."""
        return self.file.skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """A folder of suites, sorted by name."""

    root: Path
    suites: tuple[Suite, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(suite.name for suite in self.suites)
