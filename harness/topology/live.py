"""What this process is right now: the *live* source, `get_parallel()`.

A rank installs its state and its process groups once they are up, and uninstalls them at exit. Reads are safe
(DCP fields answer "off" while no DCP group is up) or loud (NoGroupError). Inside `inject()` the injected
topology answers instead, and nothing can be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from harness.errors import InjectionError, NoGroupError, TopologyError
from harness.topology.injections import Injection, current, require_inside
from harness.topology.state import ParallelState


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One answer of the live source: the worker's state, if known, and the groups that are up, by kind."""

    state: ParallelState | None = None
    groups: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def dcp_state(self) -> ParallelState | None:
        """The state where it may speak of DCP: once the group is up."""
        return self.state if "dcp" in self.groups else None


class _Loud:
    """A field of the worker's ParallelState, read loudly under its own name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, live: LiveParallel, owner: type) -> int:
        value: int = getattr(live.state, self.name)
        return value


class LiveParallel:
    """The live topology; each attribute is looked up when it is read, so a kept object never goes stale.

    `tp_rank`, `tp_size` and the other fields of ParallelState raise NoGroupError while nothing is installed.
    All of them raise InjectionError in a thread that has not copied the context of an open `inject()`.
    """

    __slots__ = ()

    tp_rank = _Loud()
    tp_size = _Loud()
    pp_rank = _Loud()
    pp_size = _Loud()
    dp_rank = _Loud()
    dp_size = _Loud()
    attn_tp_rank = _Loud()
    attn_tp_size = _Loud()
    attn_cp_rank = _Loud()
    attn_cp_size = _Loud()
    attn_dp_rank = _Loud()
    attn_dp_size = _Loud()
    moe_ep_rank = _Loud()
    moe_ep_size = _Loud()
    moe_dp_rank = _Loud()
    moe_dp_size = _Loud()

    def snapshot(self) -> Snapshot:
        """What all reads below go by."""
        injection = current()
        return _installed if injection is None else injected_snapshot(injection)

    @property
    def state(self) -> ParallelState:
        """The installed worker state. Raises NoGroupError where there is none."""
        state = self.snapshot().state
        if state is None:
            raise NoGroupError(
                "no topology is installed in this process: install_parallel() has not been called"
            )
        return state

    @property
    def dcp_enabled(self) -> bool:
        """Safe: whether a DCP group of more than one rank is up."""
        return self.attn_dcp_size > 1

    @property
    def attn_dcp_size(self) -> int:
        """Safe: ranks of this rank's DCP group, 1 while none is up."""
        state = self.snapshot().dcp_state
        return 1 if state is None else state.attn_dcp_size

    @property
    def attn_dcp_rank(self) -> int:
        """Safe: this rank in its DCP group, 0 while none is up."""
        state = self.snapshot().dcp_state
        return 0 if state is None else state.attn_dcp_rank

    @property
    def dcp_size(self) -> int:
        """Loud: raises NoGroupError while no DCP group is up."""
        return self._dcp()[0].attn_dcp_size

    @property
    def dcp_rank(self) -> int:
        """Loud: raises NoGroupError while no DCP group is up."""
        return self._dcp()[0].attn_dcp_rank

    @property
    def dcp_group(self) -> object:
        """The DCP group as it was installed. Loud: raises NoGroupError while none is up."""
        return self._dcp()[1]

    def _dcp(self) -> tuple[ParallelState, object]:
        snapshot = self.snapshot()
        if snapshot.dcp_state is None:
            raise NoGroupError("no DCP group is installed here: DCP is off, or its groups are not up yet")
        return snapshot.dcp_state, snapshot.groups["dcp"]


class InjectedParallel(LiveParallel):
    """The live topology of one `inject()` block. Every read raises InjectionError after the block, and in a
    thread that has not copied the block's context."""

    __slots__ = ("_injection",)

    def __init__(self, injection: Injection) -> None:
        self._injection = injection

    def snapshot(self) -> Snapshot:
        require_inside(self._injection)
        return injected_snapshot(self._injection)


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

    A state installed without a "dcp" group leaves DCP reads off or loud. Raises InjectionError inside
    `inject()`, and TopologyError where a topology is installed already.
    """
    global _installed
    if (injection := current()) is not None:
        raise InjectionError(f"install_parallel() was called inside {injection}, which already answers")
    if _installed is not _NOTHING:
        raise TopologyError("a topology is already installed in this process: uninstall_parallel() first")
    _installed = Snapshot(state, MappingProxyType(dict(groups or {})))


def uninstall_parallel() -> None:
    """Back to nothing installed; does nothing where nothing is."""
    global _installed
    _installed = _NOTHING
