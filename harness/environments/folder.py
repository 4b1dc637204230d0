"""Where environments lie, and which of them are finished.

    .envs/base-torch-2.13.0/     what all share; a virtual environment of its own
    .envs/sglang-0.5.18/         one release: the package and its own pins, and a `.pth` line to the base
    .envs/current-sglang         the name of the release made last, which is the default

An environment is finished when it holds `environment.json`, which arrives with the whole folder in one rename.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
from harness.environments.model import SGLANG, Environment, EnvironmentMissingError, Proof
from harness.environments.releases import default_release, known_releases
from harness.errors import UsageError

RECORD = "environment.json"
# What else begins with a dot in the folder: locks, and folders in the making.
HIDDEN = "."


def envs_folder() -> Path:
    """`HARNESS_ENVS`; else `.envs` of the checkout that harness runs from; else `./.envs`."""
    given = os.environ.get("HARNESS_ENVS")
    if given:
        return Path(given).expanduser().absolute()
    checkout = Path(harness.__file__).resolve().parent.parent
    return (checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()) / ".envs"


def find_environment(engine: str, *, version: str | None = None, folder: Path | None = None) -> Environment:
    """The finished environment of that release; without a version the current one.

    Raises EnvironmentMissingError where there is none, with the command that makes it, and UsageError for a
    version that can neither be found nor built.
    """
    if engine != SGLANG:
        raise UsageError(f"no environment is known for engine {engine!r}; allowed: {SGLANG}")
    releases = {e.version: e for e in list_environments(folder) if e.engine == engine and e.has_package}
    wanted = version or _current_version(releases, folder=folder or envs_folder(), engine=engine)
    if wanted in releases:
        return releases[wanted]
    built = f" (built: {', '.join(releases)})" if releases else ""
    missing = f"there is no environment for {engine} {wanted or ''}".rstrip() + built
    if wanted is not None and wanted not in known_releases():
        # a command that the builder refuses helps nobody
        raise UsageError(
            f"{missing}, and none can be built; can be built: {', '.join(known_releases())}. "
            "Other code is given as a checkout: --source PATH"
        )
    raise EnvironmentMissingError(
        engine, missing, command=f"make {engine} VERSION={wanted or default_release()}"
    )


def list_environments(folder: Path | None = None) -> list[Environment]:
    """All finished environments, by name. One whose base or interpreter is gone does not count as finished."""
    root = folder or envs_folder()
    records = sorted(root.glob(f"[!{HIDDEN}]*/{RECORD}"))
    found = [_load(record, read_record(record.parent)) for record in records]
    return [environment for environment in found if environment is not None]


def read_record(place: Path) -> dict[str, Any]:
    """`environment.json` of that environment. Raises UsageError where it is not what the builder wrote."""
    try:
        record = json.loads((place / RECORD).read_text("utf-8"))
        if record["schema"] == 1:
            return dict(record)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UsageError(f"{place / RECORD} cannot be read; remove {place} and build it again")


def current_name(engine: str, folder: Path) -> str | None:
    """The name of the environment that is the default, whether or not it still exists."""
    try:
        return (folder / f"current-{engine}").read_text("utf-8").strip() or None
    except OSError:
        return None


def is_current(environment: Environment, folder: Path | None = None) -> bool:
    """Whether `find_environment` gives this one to somebody who names no version."""
    try:
        return find_environment(environment.engine, folder=folder).name == environment.name
    except EnvironmentMissingError:
        return False


def newest_first(version: str) -> tuple[int, ...]:
    """A sort key for versions: 0.5.9 before 0.5.18. Words in a version count as 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _current_version(releases: dict[str, Environment], *, folder: Path, engine: str) -> str | None:
    """That of the release made last; when it was removed since, the highest that is left."""
    name = current_name(engine, folder)
    for version, environment in releases.items():
        if environment.name == name:
            return version
    return max(releases, key=newest_first, default=None)


def _load(file: Path, record: dict[str, Any]) -> Environment | None:
    """None for a base, and for an environment that cannot start any more."""
    place = file.parent
    if "engine" not in record or not (place.parent / record["base"] / RECORD).is_file():
        return None
    environment = Environment(
        name=place.name,
        engine=record["engine"],
        version=record["version"],
        python=place / "bin" / "python",
        package=place / record["package"],
        generation=record["generation"],
        transformers=record["transformers"],
        python_version=record["python"],
    )
    if not environment.python.exists():
        return None
    proof = record["proof"]
    return replace(
        environment,
        proof=Proof(imported=tuple(proof["imported"]), failed=proof["failed"], seconds=proof["seconds"]),
    )
