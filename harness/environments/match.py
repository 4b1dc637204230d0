"""Which built environment has the dependencies that a source wants.

A source says it itself where it can: its pyproject pins one release of transformers, and so does the metadata
beside an unpacked release. Else its version names the release, and else its API the generation.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.environments.folder import find_environment, list_environments, newest_first
from harness.environments.model import (
    SGLANG,
    EngineSource,
    Environment,
    EnvironmentMissingError,
)
from harness.environments.releases import (
    Pins,
    known_releases,
    live_only_module,
    pins_of_release,
    pins_of_transformers,
    transformers_of_generation,
)

# As a TOML string or as a line of metadata; a range of versions names no one release.
PIN = re.compile(r"(?:^Requires-Dist:\s*|[\"'])transformers\s*==\s*([0-9][0-9A-Za-z.]*)", re.MULTILINE)


def wanted_pins(source: EngineSource) -> Pins:
    """The pins of that source. Raises UsageError where it wants dependencies that are not known."""
    package = source.package_root
    generation = "live" if _has_module(package, live_only_module()) else "published"
    # a wheel that was unpacked carries its metadata beside the package
    told = [package / "pyproject.toml", *sorted(package.glob(f"{SGLANG}-*.dist-info/METADATA"))]
    pinned = next(filter(None, map(_pinned, told)), None)
    if pinned is not None:
        return pins_of_transformers(pinned, generation=generation)
    if source.version in known_releases():
        return pins_of_release(source.version)
    return pins_of_transformers(transformers_of_generation(generation), generation=generation)


def environment_for(source: EngineSource, *, folder: Path | None = None) -> Environment:
    """The environment to run that source in: of its own release, else the current one, else any with the same
    pins, releases before one that was made for a source.

    Raises EnvironmentMissingError, with the command, where none has its pins.
    """
    wanted = wanted_pins(source).transformers
    fitting = [e for e in list_environments(folder) if e.transformers == wanted]
    if not fitting:
        raise EnvironmentMissingError(
            SGLANG,
            f"no environment has the dependencies of {source.root} (transformers {wanted})",
            command=f"make {SGLANG} SOURCE={source.root}",
        )
    current = _current(folder)

    def fit(environment: Environment) -> tuple[bool, bool, tuple[int, ...]]:
        same = bool(source.version) and environment.version == source.version
        return same, environment.name == current, newest_first(environment.version)

    return max(fitting, key=fit)


def _current(folder: Path | None) -> str | None:
    try:
        return find_environment(SGLANG, folder=folder).name
    except EnvironmentMissingError:
        return None


def _pinned(file: Path) -> str | None:
    try:
        found = PIN.search(file.read_text("utf-8"))
    except OSError:
        return None
    return found[1] if found else None


def _has_module(package_root: Path, module: str) -> bool:
    return package_root.joinpath(*module.split(".")).with_suffix(".py").is_file()
