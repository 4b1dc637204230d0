"""Which injected topology the code that is running now stands in: the registry under `inject()`.

An injection is opened and closed by `shim.inject` and looked up by every live read. Lookup goes by a
ContextVar, so it follows the call, the asyncio task and a copied context. It never guesses: code for which
the answer is unclear (a thread without the context, a task that outlives the block) gets InjectionError.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from harness.errors import InjectionError
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
    """One `inject()` block while it is open: what the live source answers inside, and who opened it."""

    __slots__ = ("dcp_group", "lingers", "live", "opener")

    def __init__(self, live: ParallelState, dcp_group: object) -> None:
        self.live = live
        self.dcp_group = dcp_group
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
_open: set[Injection] = set()
_lock = threading.Lock()


def push(injection: Injection) -> None:
    with _lock:
        _open.add(injection)
    _stack.set((*_stack.get(), injection))


def remove(injection: Injection) -> None:
    """Close it, from whatever context: a generator may be closed in another one than it was started in, so no
    token is kept, and one that lingers in the stack of its opener is skipped by lookups."""
    stack = _stack.get()
    injection.lingers = injection not in stack or injection.opener != Place.here()
    with _lock:
        _open.discard(injection)
    _stack.set(tuple(other for other in stack if other is not injection))


def current() -> Injection | None:
    """The innermost open injection of this context, or None where nothing is injected.

    Raises InjectionError in a thread that has not copied the context of an open injection, and in a thread or
    task that copied one and outlived it.
    """
    stack = _stack.get()
    for injection in reversed(stack):
        if injection.is_open:
            return injection
        if not injection.lingers and injection.opener != Place.here():
            raise InjectionError(
                f"topology was read after {injection} ended, by a thread or task started in it"
            )
    if stack:
        _stack.set(())  # only what lingers: tasks started from now on shall not inherit it
    _refuse_strangers()
    return None


def require_inside(injection: Injection) -> None:
    """Raise InjectionError unless this injection is open and this code stands in it."""
    if not injection.is_open:
        raise InjectionError(f"topology was read through a view of {injection}, which has ended")
    if injection not in _stack.get():
        raise InjectionError(_stranger(injection))


def _refuse_strangers() -> None:
    if not _open:  # the common case, an engine's own process, pays no lock
        return
    with _lock:
        injections = tuple(_open)
    here = Place.here()
    for injection in injections:
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
