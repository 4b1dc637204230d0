"""Which injected topology the code that is running now stands in: the registry under `inject()`.

An injection is opened and closed by `shim.inject` and looked up by every live read. Lookup goes by a
ContextVar, so it follows the call, the asyncio task and a copied context. It never guesses: code for which
the answer is unclear (a thread without the context, a task or callback that outlives the block) gets
InjectionError.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from harness.errors import InjectionError
from harness.topology.config import ParallelConfig
from harness.topology.state import ParallelState


@dataclass(frozen=True, slots=True)
class Place:
    """A thread, and in it an asyncio task if one runs."""

    thread: int
    task: Any | None

    @classmethod
    def here(cls) -> Place:
        return cls(threading.get_ident(), _running_task())


class Injection:
    """One `inject()` block while it is open: what the three sources say inside, and who opened it."""

    __slots__ = ("dcp_group", "lingers", "live", "opener", "ps", "seed", "token")

    # Given by `push`; tells the context that opened the block from its copies.
    token: Token[tuple[Injection, ...]]

    def __init__(
        self, live: ParallelState, dcp_group: object, *, seed: ParallelConfig, ps: ParallelState
    ) -> None:
        self.live = live
        self.dcp_group = dcp_group
        self.seed = seed
        self.ps = ps
        self.opener = Place.here()
        # Once closed: whether that was done elsewhere, so that the context that opened it still carries it.
        self.lingers = False

    @property
    def is_open(self) -> bool:
        return self in _open

    def __str__(self) -> str:
        return f"inject(rank {self.live.tp_rank} of tp {self.live.tp_size}, dcp {self.live.attn_dcp_size})"


# Innermost last. Immutable, so that a copied context keeps what it copied.
_stack: ContextVar[tuple[Injection, ...]] = ContextVar("harness_injections", default=())
# Every open injection of the process, whatever its context: how a foreign thread learns that one is there.
# Changed and copied by single calls only, without a lock: a generator that holds a block may be collected, and so
# close it, at any moment, also while this very thread would hold that lock.
_open: set[Injection] = set()


def push(injection: Injection) -> None:
    _open.add(injection)
    injection.token = _stack.set((*_stack.get(), injection))


def remove(injection: Injection) -> None:
    """Close it, from whatever context: a generator may be closed in another one than it was started in. One that
    then lingers in the stack of its opener is skipped by lookups."""
    stack = _stack.get()
    injection.lingers = not _was_opened_in_this_context(injection)
    _open.discard(injection)
    _stack.set(tuple(other for other in stack if other is not injection))


def _was_opened_in_this_context(injection: Injection) -> bool:
    """Contexts have no identity that one can ask for, but a token resets only the very one it was made in."""
    try:
        _stack.reset(injection.token)
    except ValueError:
        return False
    return True


def current() -> Injection | None:
    """The innermost open injection of this context, or None where nothing is injected.

    Raises InjectionError in a thread that has not copied the context of an open injection, and in any copy of
    its context that outlived it: a thread, a task, a callback.
    """
    stack = _stack.get()
    for injection in reversed(stack):
        if injection.is_open:
            return injection
        if not injection.lingers:
            raise InjectionError(
                f"topology was read after {injection} ended, by a thread, task or callback started in it"
            )
    if stack:
        _stack.set(())  # only what lingers is left: a long process shall not carry it for ever
    _refuse_strangers()
    return None


def require_inside(injection: Injection) -> None:
    """Raise InjectionError unless this injection is open and this code stands in it."""
    if not injection.is_open:
        raise InjectionError(f"topology was read through a view of {injection}, which has ended")
    if injection not in _stack.get():
        raise InjectionError(_stranger(injection))


def _refuse_strangers() -> None:
    if not _open:  # the common case, an engine's own process, asks no further
        return
    here = Place.here()
    for injection in _open.copy():
        if not _is_sibling_task(injection.opener, here):
            raise InjectionError(_stranger(injection))


def _is_sibling_task(opener: Place, here: Place) -> bool:
    """A task of the same loop that was not started inside: it never had the injection."""
    return opener.thread == here.thread and opener.task is not None and opener.task is not here.task


def _stranger(injection: Injection) -> str:
    return (
        f"topology was read outside the context of {injection}, which is open: start the thread with"
        " contextvars.copy_context().run, or use asyncio.to_thread"
    )


def _running_task() -> Any | None:
    # Looked up, not imported: where no one has imported asyncio no task can run, and its import is slow.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None
