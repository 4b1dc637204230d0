"""The suite language as models: one class per mapping of a suite file, validated by pydantic.

`SuiteFile` is a whole file at one matrix point, as the loader builds it; everything else is a part of it. The
classes know shapes and units only: what spans several keys is in `rules`, places are added by `diagnose`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from harness.suites.extras import Extra
from harness.suites.fields import (
    EACH_ONCE,
    UNIQUE,
    Args,
    Day,
    Env,
    FaultId,
    Flag,
    Model,
    Seconds,
    Size,
    Slug,
    SourcePath,
    Text,
)
from harness.suites.targets import Target, default_targets
from harness.topology import ParallelConfig


class ProfileName(StrEnum):
    """`gpu`: the real engine and model; `cpu`: the reference engine, same topology, same checks."""

    CPU = "cpu"
    GPU = "gpu"


class EngineKind(StrEnum):
    """The engines that harness can launch."""

    REFERENCE = "reference"
    SGLANG = "sglang"
    VLLM = "vllm"


# The reference engine forks its ranks in under 4 s; 30 s leaves room for two busy cores. A real engine loads
# hundreds of GB of weights and captures graphs: upstream's own launches take 10 to 15 minutes.
DEFAULT_LAUNCH_TIMEOUT = {EngineKind.REFERENCE: 30.0, EngineKind.SGLANG: 1500.0, EngineKind.VLLM: 1500.0}


def _default_launch_timeout(data: dict[str, Any]) -> float:
    return DEFAULT_LAUNCH_TIMEOUT[data.get("kind", EngineKind.REFERENCE)]


class ParallelSpec(Model):
    """Sizes of the topology, by the short names that engines use for them."""

    tp: Size = 1
    pp: Size = 1
    dp: Size = 1
    dcp: Size = 1
    ep: Size = 1
    attn_cp: Size = 1
    moe_dp: Size = 1
    dp_attention: Flag = False

    def config(self) -> ParallelConfig:
        """The topology; raises TopologyError where it cannot be built."""
        return ParallelConfig(
            tp_size=self.tp,
            pp_size=self.pp,
            dp_size=self.dp,
            attn_cp_size=self.attn_cp,
            dcp_size=self.dcp,
            ep_size=self.ep,
            moe_dp_size=self.moe_dp,
            enable_dp_attention=self.dp_attention,
        )

    def world_size(self) -> int:
        """Processes, one device each. With DP attention the replicas share the TP group's ranks."""
        return self.tp * self.pp * (1 if self.dp_attention else self.dp)


class ParallelChange(Model):
    """What a baseline changes in the layout of the engine under test; absent sizes stay."""

    tp: Size | None = None
    pp: Size | None = None
    dp: Size | None = None
    dcp: Size | None = None
    ep: Size | None = None
    attn_cp: Size | None = None
    moe_dp: Size | None = None
    dp_attention: Flag | None = None

    def changes(self) -> dict[str, int]:
        return self.model_dump(exclude_none=True)


class SourceSpec(Model):
    """Where an engine comes from: a repository at a ref, a checkout, or an installed version."""

    repo: Text | None = None
    ref: Text | None = None
    install: Text | None = None
    path: Text | None = None
    version: Text | None = None


class EngineSpec(Model):
    """One engine launch: what, which model, which layout, which flags."""

    kind: EngineKind
    source: SourceSpec | None = None
    model: Text
    parallel: ParallelSpec = ParallelSpec()
    args: Args = Field(default_factory=dict)
    launch_timeout: Seconds = Field(default_factory=_default_launch_timeout)
    env: Env = Field(default_factory=dict)

    def with_parallel(self, **changes: int) -> EngineSpec:
        """The same launch in another layout, such as `dcp=1` for the baseline; unknown sizes are a bug."""
        parallel = ParallelSpec.model_validate(self.parallel.model_dump() | changes)
        return self.model_copy(update={"parallel": parallel})


class RouterSpec(Model):
    """The router before a prefill and a decode engine."""

    args: Args = Field(default_factory=dict)


class Needs(Model):
    """What a job occupies: slots of the cpu pool, or `count` devices of one GPU kind; and what must be installed."""

    cpu: Size | None = None
    gpu: Slug | None = None
    count: Size | None = None
    extras: Annotated[tuple[Extra, ...], EACH_ONCE, UNIQUE] = ()


class Profile(Model):
    """One way to run a suite; all deadlines in seconds, innermost to outermost: launch, estimate, timeout."""

    needs: Needs
    estimate: Seconds
    timeout: Seconds
    engine: EngineSpec | None = None
    prefill: EngineSpec | None = None
    decode: EngineSpec | None = None
    router: RouterSpec | None = None

    @property
    def engines(self) -> dict[str, EngineSpec]:
        """The declared engines by key: `engine`, or `prefill` and `decode`."""
        parts = {"engine": self.engine, "prefill": self.prefill, "decode": self.decode}
        return {key: part for key, part in parts.items() if part is not None}

    @property
    def tested(self) -> EngineSpec | None:
        """What a baseline is another layout of: the engine, or of a pair the one that answers."""
        return self.engine or self.decode

    @property
    def launch_timeout(self) -> float:
        """Seconds until all engines are ready: the longest, as they start side by side; 0 without engine."""
        return max((engine.launch_timeout for engine in self.engines.values()), default=0.0)


class Profiles(Model):
    """The profiles by name. Fields, not a mapping, so that a misspelt name gets a hint."""

    cpu: Profile | None = None
    gpu: Profile | None = None

    def by_name(self) -> dict[ProfileName, Profile]:
        pairs = {ProfileName.CPU: self.cpu, ProfileName.GPU: self.gpu}
        return {name: profile for name, profile in pairs.items() if profile is not None}


class Baseline(Model):
    """The paired run: same engine, model, arguments and questions, another layout."""

    parallel: ParallelChange


class Skip(Model):
    """A declared skip: needs a reason, and ends by itself after the day `until`."""

    reason: Text
    until: Day


class LeftOut(Model):
    """One of the engine's test files, or one test of it, that a suite does not run, and why."""

    file: SourcePath
    test: Text | None = None
    reason: Text


class SourceTests(Model):
    """The engine's own test files: those of its source that match and that upstream runs on such machines."""

    files: Annotated[tuple[SourcePath, ...], Field(min_length=1)]
    registered: Literal["cpu", "cuda", "amd", "npu", "xpu", "musa", "mlx"] = "cpu"
    exclude: tuple[LeftOut, ...] = ()


class SuiteFile(Model):
    """A suite file at one matrix point. `checks` is validated apart, profile by profile (`check_params`)."""

    settled_keys: ClassVar[tuple[str, ...]] = ("extends", "matrix")

    summary: Text
    owners: tuple[Text, ...] = ()
    tags: tuple[Slug, ...] = ()
    triggers: tuple[Slug, ...] = ()
    upstream: Text | None = None
    env: Env = Field(default_factory=dict)
    python: Slug | None = None
    targets: Annotated[tuple[Target, ...], Field(min_length=1)] | None = None
    profiles: Profiles
    baseline: Baseline | None = None
    checks: tuple[Any, ...] = ()
    tests: tuple[Text, ...] = ()
    # Ids of faults that its tests plant where they are asked to.
    faults: Annotated[tuple[FaultId, ...], EACH_ONCE, UNIQUE] = ()
    source_tests: SourceTests | None = None
    skip: Skip | None = None

    @property
    def all_targets(self) -> tuple[Target, ...]:
        """As written, else the one that goes with the suite's environment; the first is the default."""
        return self.targets or default_targets(self.python)
