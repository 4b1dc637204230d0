"""The launch arguments of the reference engine: their names, and what each takes.

Real engines have hundreds of flags that change with every version; ours has these, so a wrong one is found
before anything starts: in a suite by the loader (`check_reference_arg`), on the command line by
`parse_reference_arg`. `refengine` is no import of this room: a test holds both sides equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.suites.engine_args import ArgValue, check_arg_name
from harness.suites.wording import show, suggest

# The reference engine's own defaults.
REFERENCE_PAGE_SIZE = 16
REFERENCE_INTERLEAVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgKind:
    """What an argument takes: a type, for numbers a least value, for texts the words that are allowed."""

    type: type[bool] | type[int] | type[float] | type[str]
    least: int | None = None
    words: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        """The clause of a message."""
        if self.words:
            return ", ".join(self.words)
        name = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.type]
        return name if self.least is None else f"{name}, {self.least} or more"

    def admits(self, value: object) -> bool:
        """Whether the engine takes the value. A whole number is a number, true is none."""
        if isinstance(value, bool) or self.type is bool:
            return type(value) is self.type
        if not isinstance(value, (int, float) if self.type is float else self.type):
            return False
        if isinstance(value, str):
            return not self.words or value in self.words
        return self.least is None or value >= self.least


_SIZE = ArgKind(type=int, least=1)
_FLAG = ArgKind(type=bool)

REFERENCE_ARGS: Mapping[str, ArgKind] = {
    "page-size": _SIZE,
    "interleave": _SIZE,
    "chunked-prefill-size": _SIZE,
    "kv-bytes": _SIZE,
    "max-total-tokens": _SIZE,
    "max-running-requests": _SIZE,
    "seed": ArgKind(type=int),
    "poison": ArgKind(type=float),
    "kv-rows": _FLAG,
    "no-kv-rows": _FLAG,
    "dtype": ArgKind(type=str, words=("fp32", "bf16")),
    "attention-backend": ArgKind(type=str, words=("torch", "triton")),
    "disaggregation-transfer-backend": ArgKind(type=str, words=("shm", "tcp", "nixl")),
    "transfer-timeout": ArgKind(type=float),
    "dcp-comm-backend": ArgKind(type=str, words=("ag_rs", "a2a")),
    "comm": ArgKind(type=str, words=("shm", "gloo", "nccl")),
    "device": ArgKind(type=str, words=("cpu", "cuda")),
    "start-method": ArgKind(type=str, words=("fork", "spawn")),
    "served-model-name": ArgKind(type=str),
}


# Those of the router before a pair of reference engines (`harness engine route`).
ROUTER_ARGS: Mapping[str, ArgKind] = {
    "request-timeout": ArgKind(type=float),
    "attempts": _SIZE,
    "wait-ready": ArgKind(type=float),
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
