"""What this process is right now: the *live* source, `get_parallel()`.

A rank installs its state and its process groups once they are up, and uninstalls them at exit. Reads are safe
(DCP fields answer "off" while no DCP group is up) or loud (NoGroupError). Inside `inject()` the injected
topology answers instead, and nothing can be installed. `reads.record_reads()` hears of every read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, SupportsIndex, TypeVar, overload

from harness.errors import InjectionError, NoGroupError, TopologyError
from harness.topology import reads
from harness.topology.injections import Injection, current, require_inside
from harness.topology.names import unknown_name
from harness.topology.state import ParallelState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of the live source: the worker's state, if known, and the groups that are up, by kind."""

    state: ParallelState | None = None
    groups: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def dcp_state(self) -> ParallelState | None:
        """The state where it may speak of DCP: once the group is up."""
        return self.state if "dcp" in self.groups else None


class live_read(Generic[T]):
    """A name of the live topology: answered anew at each read, and noted where reads are recorded."""

    def __init__(self, answer: Callable[[Any], T]) -> None:
        self.answer = answer
        self.__doc__ = answer.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, live: None, owner: type) -> Self: ...
    @overload
    def __get__(self, live: LiveParallel, owner: type) -> T: ...
    def __get__(self, live: LiveParallel | None, owner: type) -> Self | T:
        if live is None:
            return self
        if not reads.recordings:
            return self.answer(live)
        return reads.observe(self.name, lambda: self.answer(live), phase=live.phase())


class _Field(live_read[int]):
    """A field of the worker's ParallelState, read loudly under its own name."""

    def __init__(self) -> None:
        super().__init__(self._field)

    def _field(self, live: LiveParallel) -> int:
        value: int = getattr(live.installed_state(), self.name)
        return value


class LiveParallel:
    """The live topology; each attribute is looked up when it is read, so a kept object never goes stale.

    `tp_rank`, `tp_size` and the other fields of ParallelState raise NoGroupError while nothing is installed.
    All of them raise InjectionError in a thread that has not copied the context of an open `inject()`.
    """

    __slots__ = ()

    tp_rank = _Field()
    tp_size = _Field()
    pp_rank = _Field()
    pp_size = _Field()
    dp_rank = _Field()
    dp_size = _Field()
    attn_tp_rank = _Field()
    attn_tp_size = _Field()
    attn_cp_rank = _Field()
    attn_cp_size = _Field()
    attn_dp_rank = _Field()
    attn_dp_size = _Field()
    moe_ep_rank = _Field()
    moe_ep_size = _Field()
    moe_dp_rank = _Field()
    moe_dp_size = _Field()

    @live_read
    def state(self) -> ParallelState:
        """The installed worker state. Raises NoGroupError where there is none."""
        return self.installed_state()

    @live_read
    def dcp_enabled(self) -> bool:
        """Safe: whether a DCP group of more than one rank is up."""
        state = self.snapshot().dcp_state
        return state is not None and state.attn_dcp_size > 1

    @live_read
    def attn_dcp_size(self) -> int:
        """Safe: ranks of this rank's DCP group, 1 while none is up."""
        state = self.snapshot().dcp_state
        return 1 if state is None else state.attn_dcp_size

    @live_read
    def attn_dcp_rank(self) -> int:
        """Safe: this rank in its DCP group, 0 while none is up."""
        state = self.snapshot().dcp_state
        return 0 if state is None else state.attn_dcp_rank

    @live_read
    def dcp_size(self) -> int:
        """Loud: raises NoGroupError while no DCP group is up."""
        return self._dcp()[0].attn_dcp_size

    @live_read
    def dcp_rank(self) -> int:
        """Loud: raises NoGroupError while no DCP group is up."""
        return self._dcp()[0].attn_dcp_rank

    @live_read
    def dcp_group(self) -> object:
        """The DCP group as it was installed. Loud: raises NoGroupError while none is up."""
        return self._dcp()[1]

    def snapshot(self) -> Snapshot:
        """What all reads go by."""
        injection = current()
        return _installed if injection is None else injected_snapshot(injection)

    def installed_state(self) -> ParallelState:
        """What `state` answers, without counting as a read."""
        state = self.snapshot().state
        if state is None:
            raise NoGroupError(
                "no topology is installed in this process: install_parallel() has not been called"
            )
        return state

    def phase(self) -> reads.Phase:
        """The phase of a read at this moment. A read that is refused is neither early nor live."""
        try:
            up = self.snapshot().state is not None
        except InjectionError:
            return reads.Phase.TORN_DOWN
        return reads.Phase.LIVE if up else reads.Phase.BEFORE_INIT

    def _dcp(self) -> tuple[ParallelState, object]:
        snapshot = self.snapshot()
        if snapshot.dcp_state is None:
            raise NoGroupError("no DCP group is installed here: DCP is off, or its groups are not up yet")
        return snapshot.dcp_state, snapshot.groups["dcp"]

    if not TYPE_CHECKING:  # a type checker knows the names

        def __getattr__(self, name: str) -> NoReturn:
            known = {other: other for other in dir(type(self)) if not other.startswith("_")}
            raise unknown_name("the live topology", name, known)


class InjectedParallel(LiveParallel):
    """The live topology of one `inject()` block. Every read raises InjectionError after the block, and in a
    thread that has not copied the block's context."""

    __slots__ = ("_injection",)

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def snapshot(self) -> Snapshot:
        require_inside(self._injection)
        return injected_snapshot(self._injection)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it answers by its block alone, which has no copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise InjectionError(
            f"the live topology of {self._injection} cannot be pickled: it answers in its block and its process"
            " only; send config and rank, and inject() them there"
        )


def injected_snapshot(injection: Injection) -> Snapshot:
    """As a rank of that topology has it installed: a DCP group is up where it has more than one rank."""
    groups = {"dcp": injection.dcp_group} if injection.live.attn_dcp_size > 1 else {}
    return Snapshot(injection.live, groups)


_NOTHING = Snapshot()
_installed = _NOTHING
_process_view = LiveParallel()


def get_parallel() -> LiveParallel:
    """The live topology of the code that calls: of the innermost `inject()` block, else of the process."""
    injection = current()
    return _process_view if injection is None else InjectedParallel(injection)


def install_parallel(state: ParallelState, groups: Mapping[str, object] | None = None) -> None:
    """Make `state` this process's live topology; `groups` holds the groups that are up, by kind ("dcp").

    A state installed without a "dcp" group leaves DCP reads off or loud. What a recording saw read before init is
    read once more. Raises InjectionError inside `inject()`, and TopologyError where a topology is installed
    already, or something else is given than a state and groups.
    """
    global _installed
    if not isinstance(state, ParallelState):
        raise TopologyError(
            f"state is {state!r}, but must be a ParallelState, such as ParallelState.from_config(config, tp_rank=0)"
        )
    if not isinstance(groups, Mapping | None):
        raise TopologyError(
            f'groups is {groups!r}, but must be a mapping of kinds to groups, such as {{"dcp": group}}'
        )
    if (injection := current()) is not None:
        raise InjectionError(f"install_parallel() was called inside {injection}, which already answers")
    if _installed is not _NOTHING:
        raise TopologyError("a topology is already installed in this process: uninstall_parallel() first")
    _installed = Snapshot(state, MappingProxyType(dict(groups or {})))
    for name in reads.names_read_early():
        with suppress(NoGroupError):
            getattr(_process_view, name)


def uninstall_parallel() -> None:
    """Back to nothing installed; does nothing where nothing is."""
    global _installed
    if _installed is not _NOTHING:
        _installed = _NOTHING
        reads.torn_down()
