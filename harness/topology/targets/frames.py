"""What the package knows about its process, set for the length of a block and put back.

SGLang keeps one topology per process in module state. Each `inject(target="sglang")` block is a frame over it:
opening one remembers what it covers, closing one puts that back, in whatever order and from whatever thread
they are closed (a generator that holds a block may be collected anywhere, and late).
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass
from typing import Any

from harness.errors import InjectionError
from harness.topology import injections
from harness.topology.injections import Injection

CONTEXT_MODULE = "sglang.srt.runtime_context"


@dataclass(frozen=True, slots=True)
class Saved:
    """A value by identity, and what it held where it is a container that the package changes in place."""

    value: Any
    content: Any

    @classmethod
    def of(cls, value: Any) -> Saved:
        return cls(value, type(value)(value) if type(value) in (dict, list) else None)

    def put_back(self) -> Any:
        if type(self.value) is dict:
            self.value.clear()
            self.value.update(self.content)
        elif type(self.value) is list:
            self.value[:] = self.content
        return self.value


@dataclass(frozen=True, slots=True)
class ProcessState:
    """Everything that publishing a config or a topology replaces."""

    context: Any
    context_values: dict[str, Saved]
    parallel: Any
    parallel_values: dict[str, Saved]
    parallel_class: type
    # seeded by publishing, in an object that publishing keeps
    torch_compile: bool

    @classmethod
    def read(cls) -> ProcessState:
        module = importlib.import_module(CONTEXT_MODULE)
        context, parallel = module._CONTEXT, module._PARALLEL
        return cls(
            context=context,
            context_values=_slot_values(context),
            parallel=parallel,
            parallel_values=_slot_values(parallel),
            parallel_class=type(parallel),
            torch_compile=context.flags.capture.enable_torch_compile,
        )

    def restore(self) -> None:
        module: Any = importlib.import_module(CONTEXT_MODULE)
        module._CONTEXT, module._PARALLEL = self.context, self.parallel
        object.__setattr__(self.parallel, "__class__", self.parallel_class)
        for owner, values in ((self.context, self.context_values), (self.parallel, self.parallel_values)):
            for name, saved in values.items():
                object.__setattr__(owner, name, saved.put_back())
        self.context.flags.capture.enable_torch_compile = self.torch_compile


def _slot_values(owner: object) -> dict[str, Saved]:
    # Past the guard: frames are opened and closed by whoever does it, only reads of topology are guarded.
    slots: tuple[str, ...] = type(owner).__slots__  # type: ignore[attr-defined]
    return {name: Saved.of(object.__getattribute__(owner, name)) for name in slots}


@dataclass(slots=True, eq=False)
class Frame:
    """One open block, and the state that it covers."""

    injection: Injection
    covered: ProcessState


_frames: list[Frame] = []
_lock = threading.RLock()


def open_frame(injection: Injection) -> Frame:
    """Raises InjectionError while a thread or task has a frame open that this code does not stand in."""
    with _lock:
        require_innermost()
        frame = Frame(injection, ProcessState.read())
        _frames.append(frame)
        return frame


def close_frame(frame: Frame) -> None:
    """Put back what it covers, or, where a later frame is still open, let that one put it back."""
    with _lock:
        index = _frames.index(frame)
        del _frames[index]
        if index < len(_frames):
            _frames[index].covered = frame.covered
        else:
            frame.covered.restore()


def require_innermost() -> None:
    """Raise InjectionError unless this code stands in the block whose topology the package now answers."""
    if not _frames:
        return
    injection = _frames[-1].injection
    if injection.opener.thread != threading.get_ident():
        raise InjectionError(_stranger(injection, "thread"))
    try:
        injections.require_inside(injection)
    except InjectionError:
        raise InjectionError(_stranger(injection, "task")) from None


def _stranger(injection: Injection, kind: str) -> str:
    return (
        f"sglang's topology was asked for while another {kind} has {injection} open: the package keeps one"
        " topology per process, so one process is one rank at a time; start a process per rank"
    )
