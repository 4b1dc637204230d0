"""The launch arguments of the reference engine: their names, and what each takes.

Real engines have hundreds of flags that change with every version; ours has these, so a wrong one is found
before anything starts: in a suite by the loader (`check_reference_arg`), on the command line by
`parse_reference_arg`. `refengine` is no import of this room: a test holds both sides equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.suites.engine_args import ArgValue, check_arg_name
from harness.suites.wording import show, suggest

# The reference engine's own defaults.
REFERENCE_PAGE_SIZE = 16
REFERENCE_INTERLEAVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgKind:
    """What an argument takes: a type, for numbers a range, for texts the words that are allowed.

    Numbers are finite, from `least` to `most`, and more than `above`.
    """

    type: type[bool] | type[int] | type[float] | type[str]
    least: float | None = None
    most: float | None = None
    above: float | None = None
    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The clause of a message."""
        if self.words:
            return ", ".join(self.words)
        name = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.type]
        if self.above is not None:
            return f"{name} above {self.above}"
        if self.least is None:
            return name
        return (
            f"{name}, {self.least} or more" if self.most is None else f"{name}, {self.least} to {self.most}"
        )

    def admits(self, value: object) -> bool:
        """Whether the engine takes the value. A whole number is a number, true is none."""
        if isinstance(value, bool) or self.type is bool:
            return type(value) is self.type
        if not isinstance(value, (int, float) if self.type is float else self.type):
            return False
        if isinstance(value, str):
            return not self.words or value in self.words
        return self._is_in_range(value)

    def _is_in_range(self, value: float) -> bool:
        return (
            # A whole number may be longer than any float.
            (isinstance(value, int) or math.isfinite(value))
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
        )


_SIZE = ArgKind(type=int, least=1)
_FLAG = ArgKind(type=bool)
_TIMEOUT = ArgKind(type=float, above=0)
# The engine's own bounds: what torch's generators take, and what is finite in every dtype.
_MAX_SEED = 2**63 - 1
_MAX_POISON = 1e38

REFERENCE_ARGS: Mapping[str, ArgKind] = {
    "page-size": _SIZE,
    "interleave": _SIZE,
    "chunked-prefill-size": _SIZE,
    "kv-bytes": _SIZE,
    "max-total-tokens": _SIZE,
    "max-running-requests": _SIZE,
    "seed": ArgKind(type=int, least=-_MAX_SEED, most=_MAX_SEED),
    "poison": ArgKind(type=float, least=-_MAX_POISON, most=_MAX_POISON),
    "kv-rows": _FLAG,
    "no-kv-rows": _FLAG,
    "dtype": ArgKind(type=str, words=("fp32", "bf16")),
    "attention-backend": ArgKind(type=str, words=("torch", "triton")),
    "disaggregation-transfer-backend": ArgKind(type=str, words=("shm", "tcp", "nixl")),
    "transfer-timeout": _TIMEOUT,
    "dcp-comm-backend": ArgKind(type=str, words=("ag_rs", "a2a")),
    "comm": ArgKind(type=str, words=("shm", "gloo", "nccl")),
    "device": ArgKind(type=str, words=("cpu", "cuda")),
    "start-method": ArgKind(type=str, words=("fork", "spawn")),
    "served-model-name": ArgKind(type=str),
}


# Those of the router before a pair of reference engines (`harness engine route`).
ROUTER_ARGS: Mapping[str, ArgKind] = {
    "request-timeout": _TIMEOUT,
    "attempts": _SIZE,
    "wait-ready": ArgKind(type=float, least=0),
}


def check_reference_arg(name: str, value: ArgValue) -> None:
    """Raises ValueError for an argument that the reference engine does not have, or a value it does not take."""
    _check(name, value, known=REFERENCE_ARGS, whose="the reference engine")


def check_router_arg(name: str, value: ArgValue) -> None:
    """The same of the router."""
    _check(name, value, known=ROUTER_ARGS, whose="the router")


def _check(name: str, value: ArgValue, *, known: Mapping[str, ArgKind], whose: str) -> None:
    if name not in known:
        raise ValueError(f"{whose} has no argument {name!r}{suggest(name, known)}")
    kind = known[name]
    if not kind.admits(value):
        raise ValueError(f"{show(value)} is not allowed here; allowed: {kind.allowed}")


def parse_reference_arg(name: str, text: str) -> None:
    """The same for `name=text` as typed on a command line, where bare flags cannot be set."""
    check_arg_name(name)
    kind = REFERENCE_ARGS.get(name)
    if kind is _FLAG:
        raise ValueError(f"{name!r} is a bare flag; allowed: in the args of a suite only")
    try:
        value = kind.type(text) if kind else text
    except ValueError:
        value = text
    check_reference_arg(name, value)
