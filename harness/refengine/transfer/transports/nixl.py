"""NIXL: the prefill rank writes into memory that the decode rank registered, by UCX: over RDMA, shared memory or TCP.

Each rank has one agent, for all its windows or writers. NIXL offers nothing to wait on: whoever wrote asks `written`
again until it is.
Failure rule: a write that was begun cannot be taken back: it may go on when a stopped process does. So what it reads
from and writes to belongs to slots, never to a pool, and is kept until the transport ends where that may be.
"""

from __future__ import annotations

import base64
import importlib
import logging
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from types import ModuleType
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.refengine.transfer.transports.base import SlotSizes, TransportError
from harness.refengine.transfer.transports.modules import nixl_module

# What NIXL takes for an address.
_MAX_ADDRESS = 2**64 - 1

Memory = np.ndarray[Any, np.dtype[np.uint8]]


class NixlTransport:
    """Raises UsageError where the installed package cannot be loaded."""

    def __init__(self) -> None:
        self._agent = Agent(_load())

    def window(self, sizes: SlotSizes) -> NixlWindow:
        return NixlWindow(self._agent, sizes)

    def writer(self, offer: dict[str, Any]) -> NixlWriter:
        return NixlWriter(self._agent, offer)

    def progress(self) -> bool:
        # Nobody sends any; looking for them is what moves UCX here.
        self._agent.own.get_new_notifs()
        return True

    def close(self) -> None:
        """After all windows and writers."""
        del self._agent


class Agent:
    """NIXL's agent of this rank, and the agents of others by the number of writers that need them.

    `kept` is memory that somebody may still write to or read from.
    """

    def __init__(self, api: ModuleType) -> None:
        # Not NIXL's own thread: it spins, for each rank, whether there is anything to do or not.
        config = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
        self.own = api.nixl_agent(f"harness-{secrets.token_hex(16)}", config)
        self.kept: list[Memory] = []
        # NIXL's exceptions; they share no base of their own.
        self.errors = tuple(
            kind
            for name, kind in vars(api.nixlBind).items()
            if isinstance(kind, type) and issubclass(kind, Exception) and name.startswith("nixl")
        )
        self._writers: Counter[Any] = Counter()

    def register(self, memory: Memory) -> Any:
        """Have memory written to or read from by NIXL; returns what `own.deregister_memory` takes."""
        return self.own.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")

    def region(self, address: int, size: int) -> Any:
        """Part of registered memory, here or there."""
        return self.own.get_xfer_descs([(address, size, 0)], "DRAM")

    def meet(self, metadata: bytes) -> Any:
        """Another rank's agent, as its windows are now; raises TransportError where it cannot be reached."""
        try:
            remote = self.own.add_remote_agent(metadata)
        except self.errors as error:
            raise TransportError(f"NIXL cannot reach the decode rank's agent: {error!r}") from error
        self._writers[remote] += 1
        return remote

    def leave(self, remote: Any) -> None:
        """One writer needs that agent no more."""
        self._writers[remote] -= 1
        if not self._writers[remote]:
            with suppress(*self.errors):
                self.own.remove_remote_agent(remote)


class NixlWindow:
    def __init__(self, agent: Agent, sizes: SlotSizes) -> None:
        self._agent = agent
        self._sizes = sizes
        self._memory = np.zeros(sizes.total_bytes, dtype=np.uint8)
        self._registered = agent.register(self._memory)

    @property
    def offer(self) -> dict[str, Any]:
        return {
            **asdict(self._sizes),
            "agent": base64.b64encode(self._agent.own.get_agent_metadata()).decode(),
            "address": self._memory.ctypes.data,
        }

    def payload(self, slot: int, size: int, inline: bytes | None) -> bytes | memoryview:
        return self._memory.data[self._sizes.span(slot, size)]

    def close(self) -> None:
        # Nobody knows whether the other process has ended or was only stopped in the middle of a write.
        self._agent.kept.append(self._memory)
        self._agent.own.deregister_memory(self._registered)


class NixlWriter:
    """Slots of its own, registered too: a payload is copied there and written from there."""

    def __init__(self, agent: Agent, offer: dict[str, Any]) -> None:
        self.sizes = SlotSizes.of(offer)
        if type(offer.get("address")) is not int or not isinstance(offer.get("agent"), str):
            raise TransportError("an offer for NIXL names no agent and no address")
        self._remote_address: int = offer["address"]
        if not 0 < self._remote_address <= _MAX_ADDRESS - self.sizes.total_bytes:
            raise TransportError(f"an offer for NIXL names the address {self._remote_address}; there is none")
        self._agent = agent
        self._under_way: dict[int, Any] = {}
        self._remote = agent.meet(_metadata(offer["agent"]))
        self._memory = np.zeros(self.sizes.total_bytes, dtype=np.uint8)
        self._registered = agent.register(self._memory)

    def write(self, slot: int, payload: bytes) -> bytes | None:
        span = self.sizes.span(slot, len(payload))
        self._memory[span] = np.frombuffer(payload, dtype=np.uint8)
        agent = self._agent
        local = agent.region(self._memory[span].ctypes.data, len(payload))
        remote = agent.region(self._remote_address + span.start, len(payload))
        try:
            self._under_way[slot] = agent.own.initialize_xfer("WRITE", local, remote, self._remote)
            agent.own.transfer(self._under_way[slot])
        except agent.errors as error:
            raise TransportError(f"NIXL cannot write: {error!r}") from error
        return None

    def written(self, slot: int) -> bool:
        if slot not in self._under_way:
            return True
        try:
            state = self._agent.own.check_xfer_state(self._under_way[slot])
        except self._agent.errors as error:
            raise TransportError(f"NIXL lost a write: {error!r}") from error
        if state == "ERR":
            raise TransportError("NIXL lost a write")
        if state == "DONE":
            self._under_way.pop(slot).release()
        return bool(state == "DONE")

    def close(self) -> None:
        if self._under_way:
            self._agent.kept.append(self._memory)
        else:
            self._agent.own.deregister_memory(self._registered)
        for handle in self._under_way.values():
            with suppress(*self._agent.errors):
                handle.release()
        self._agent.leave(self._remote)


def _metadata(told: str) -> bytes:
    try:
        return base64.b64decode(told, validate=True)
    except ValueError as error:
        raise TransportError(f"an offer for NIXL holds no agent: {error}") from error


def _load() -> ModuleType:
    name = nixl_module()
    try:
        api = importlib.import_module(f"{name}._api")
    except ImportError as error:
        raise UsageError(
            f"--disaggregation-transfer-backend nixl: {name} does not load here: {error}"
        ) from error
    # It tells of each agent on stdout.
    logging.getLogger("nixl").setLevel(logging.WARNING)
    return api
