"""From what a suite declares to what is launched: shared by the sessions of jobs and by recording a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harness.engines import LaunchSpec
from harness.engines.arguments import ArgValue
from harness.suites import CheckParams, EngineSpec


def to_launch(
    engine: EngineSpec, *, args: Mapping[str, ArgValue] | None = None, faults: tuple[str, ...] = ()
) -> LaunchSpec:
    """The launch of a declared engine, with more arguments on top of the suite's."""
    parallel = engine.parallel.config()
    return LaunchSpec(
        kind=engine.kind.value,
        model=engine.model,
        parallel=parallel,
        args={**engine.args, **(args or {})},
        env=engine.env,
        launch_timeout_s=engine.launch_timeout,
        # A fault is a regression of the engine under test; with dcp 1 there is nothing to regress.
        faults=faults if parallel.dcp_size > 1 else (),
    )


def as_check_wants(launch: LaunchSpec, params: CheckParams) -> LaunchSpec:
    """The same launch with the check's own model and dtype, if it has any."""
    model = getattr(params, "model", None) or launch.model
    return replace(launch.with_args(dtype=getattr(params, "dtype", None)), model=model)
