"""Environments of engines: the virtual environments that hold a real engine, apart from that of harness.

SGLang needs hundreds of pinned packages and one release of `transformers` per range of releases, so it never
shares an environment with harness. `python -m harness.environments` builds one; execution starts a job with its
`python`; the topology targets and `harness doctor` ask which exist. Nothing here imports an engine.
"""

from harness.environments.folder import (
    envs_folder,
    find_environment,
    is_current,
    list_environments,
)
from harness.environments.match import environment_for
from harness.environments.model import (
    EngineSource,
    Environment,
    EnvironmentBuildError,
    EnvironmentMissingError,
    Proof,
)
from harness.environments.source import read_source
from harness.environments.wording import build_command, describe

__all__ = [
    "EngineSource",
    "Environment",
    "EnvironmentBuildError",
    "EnvironmentMissingError",
    "Proof",
    "build_command",
    "describe",
    "environment_for",
    "envs_folder",
    "find_environment",
    "is_current",
    "list_environments",
    "read_source",
]
