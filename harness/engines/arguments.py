"""What to launch, and how engine arguments become a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from harness.topology import ParallelConfig

ArgValue = bool | int | float | str | Sequence[bool | int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One engine launch. Two equal specs may share one running engine.

    `faults` are ids of the fault catalogue, and only the reference engine takes any.
    """

    kind: str
    model: str
    parallel: ParallelConfig
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    launch_timeout_s: float = 60.0
    faults: tuple[str, ...] = ()

    def with_args(self, **values: ArgValue | None) -> Self:
        """The same launch with some arguments set (`dtype`, …); None leaves the argument as it is."""
        changed = {key: value for key, value in values.items() if value is not None}
        return replace(self, args={**self.args, **changed})

    def with_faults(self, faults: tuple[str, ...]) -> LaunchSpec:
        """The same launch with these faults planted, and no others."""
        return replace(self, faults=faults)

    def wanting(self, *, model: str | None, dtype: str | None) -> Self:
        """The same launch of another model or in another dtype; None leaves either as it is."""
        return replace(self.with_args(dtype=dtype), model=model or self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSpec:
    """A prefill engine, a decode engine, and the router before them. Equal pairs may share what runs."""

    prefill: LaunchSpec
    decode: LaunchSpec
    router_args: Mapping[str, ArgValue] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The one of both sides."""
        return self.decode.model

    @property
    def launch_timeout_s(self) -> float:
        """Seconds until requests can be sent: the sides start together, and the router takes one or two."""
        return max(self.prefill.launch_timeout_s, self.decode.launch_timeout_s)

    def wanting(self, *, model: str | None, dtype: str | None) -> Self:
        """As for a single engine, on both sides."""
        return replace(
            self,
            prefill=self.prefill.wanting(model=model, dtype=dtype),
            decode=self.decode.wanting(model=model, dtype=dtype),
        )


def engine_flags(args: Mapping[str, ArgValue]) -> list[str]:
    """`{page-size: 16, trust: true, off: false, bs: [1, 2]}` → `--page-size 16 --trust --bs 1 2`."""
    flags: list[str] = []
    for name, value in args.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is False:
            continue
        elif isinstance(value, (str, int, float)):
            flags += [f"--{name}", str(value)]
        else:
            flags += [f"--{name}", *map(str, value)]
    return flags
