"""What the user may ask of a run beyond which jobs it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEnvironment:
    """Where jobs of one target run: the interpreter, what comes first on its path, and what it tests.

    `label` names the package and its version (`sglang 0.5.18`) in every result. `source` is the checkout whose
    own tests are run, None where the installed package is used.
    """

    python: Path
    path: tuple[Path, ...]
    label: str
    source: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """`repeat` executes each job so often; `fail_fast` starts nothing new after the first red verdict.

    `faults` and `engine_args` (`name=value`) go to the engine under test. `engine_shas` says what an engine
    kind is known to be, for the record. `fresh_baselines` has dcp=1 asked anew, also what is in the cache;
    `gated_checks` is how many checks of the run share one allowance of false alarms. `cwd` is where jobs run
    (default: here). `environments` holds that of each target but the reference. Seconds: `grace_s` between
    SIGTERM and SIGKILL, `stacks_s` for processes to write their stacks before SIGTERM.
    """

    repeat: int = 1
    fail_fast: bool = False
    faults: tuple[str, ...] = ()
    engine_args: tuple[str, ...] = ()
    engine_shas: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, TargetEnvironment] = field(default_factory=dict)
    fresh_baselines: bool = False
    gated_checks: int = 1
    cwd: Path | None = None
    # pytest tears down an engine of 8 ranks in about 2 s; ten leave room for a busy machine, and bound how
    # long an interrupt can take.
    grace_s: float = 10.0
    # faulthandler writes from the signal handler itself; a second is ample even for 8 busy ranks.
    stacks_s: float = 1.0
