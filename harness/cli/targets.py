"""`--target` and `--source`: what the tests look at, and the environment that it needs.

Called once by `run` and `plan`. What the user spelt wrongly, or a version asked for that is not built, is wrong
usage; an environment that is missing otherwise only keeps the jobs that need it from running, with the command
that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.cli.places import CHECKOUT
from harness.environments import (
    EngineSource,
    Environment,
    EnvironmentMissingError,
    environment_for,
    find_environment,
    read_source,
)
from harness.errors import UsageError
from harness.execution import TargetEnvironment
from harness.suites import Target, parse_target

# Digits of a commit or digest that are shown: no two codes of one history share 48 bits.
_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """`asked` is the target that the user named, if any; `source` the root of the checkout that was given.

    `environments` are those that can be used, `missing` says of each target whether and why its own cannot.
    """

    asked: Target | None = None
    source: Path | None = None
    environments: Mapping[str, TargetEnvironment] = field(default_factory=dict)
    missing: Mapping[str, str | None] = field(default_factory=dict)


def find_targets(target: str | None, *, source: Path | None) -> Targets:
    """What the two options mean here. A source is one of SGLang, so it asks for that target by itself.

    Raises UsageError for an unknown target, a contradiction, a path that is no source, and a version without
    environment.
    """
    asked, version = (None, None) if target is None else parse_target(target)
    read = None if source is None else read_source(source)
    if read is not None:
        if asked is Target.REFERENCE:
            raise UsageError(f"--source {source} is code of SGLang; allowed with it: --target sglang")
        asked = Target.SGLANG
    name = Target.SGLANG
    root = None if read is None else read.root
    try:
        environment = _environment(version, read)
    except UsageError as error:
        # Nobody who runs other suites should stumble over what only jobs of this target need.
        if version is not None or not (asked is None or isinstance(error, EnvironmentMissingError)):
            raise
        return Targets(asked=asked, source=root, missing={name: str(error)})
    return Targets(
        asked=asked,
        source=root,
        environments={name: _target_environment(environment, read)},
        missing={name: None},
    )


def _environment(version: str | None, source: EngineSource | None) -> Environment:
    """That of the version, else the one that has what the source needs, else the current one."""
    if version is not None or source is None:
        return find_environment(Target.SGLANG, version=version)
    return environment_for(source)


def _target_environment(environment: Environment, source: EngineSource | None) -> TargetEnvironment:
    # The harness that runs is the one that the jobs import too, whatever the environment was built with.
    path = (CHECKOUT,) if source is None else (source.package_root, CHECKOUT)
    return TargetEnvironment(
        python=environment.python,
        path=path,
        label=label(environment, source),
        source=None if source is None else source.root,
    )


def label(environment: Environment, source: EngineSource | None) -> str:
    """`sglang 0.5.18`, or `sglang 0.5.18 source commit SHA`: what the results call the package.

    A source that is no clean commit is named by its digest as well, for two of them need not be the same code;
    the words tell which of the two a number is.
    One without a version of its own must not pass for the release whose dependencies it runs with.
    """
    if source is None:
        return f"{environment.engine} {environment.version}"
    commit, dirty, _ = (source.commit or "").partition("+dirty")
    names = [f"commit {commit[:_SHORT]}{dirty}"] if commit else []
    names += [f"digest {source.digest[:_SHORT]}"] if dirty or not commit else []
    code = filter(None, [environment.engine, source.version, "source", *names])
    on = f", dependencies of {environment.version}" if environment.version and not source.version else ""
    return " ".join(code) + on
