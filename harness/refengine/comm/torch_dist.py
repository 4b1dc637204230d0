"""The torch.distributed backend: gloo on CPUs, NCCL on GPUs, one host.

Phases: whoever starts the ranks opens one listening socket on a port that the kernel picks
(`TorchPlumbing.create`); ranks inherit it, so all know the port and none is ever chosen ahead. Rank 0 serves
the rendezvous store on it, all connect, and the process groups come up together (`connect`).
On gloo every verb is one hop, `all_to_all_single`: faster than gloo's rings at decode-sized messages (four
to five times at 8 ranks), and it leaves the order of sums to us. With `native` (always for NCCL) each verb is
the library's own, and sums are in the library's order.
Failure rule: what torch raises goes through; a lost peer ends the rank.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.comm.base import Call, Comms, Communicator, Verb
from harness.refengine.config import CommBackend, EngineConfig
from harness.topology import dcp_groups

# Idle ranks wait in a broadcast for the next request, so a timeout would end a healthy engine.
_TIMEOUT = timedelta(days=1)

_HOST = "127.0.0.1"

# Control messages are CPU tensors and take gloo also where the model runs on GPUs.
_BACKENDS = {CommBackend.GLOO: "gloo", CommBackend.NCCL: "cpu:gloo,cuda:nccl"}


def _verb(new: str, old: str) -> Callable[..., Any]:
    """torch 2.13 renamed these verbs and warns about the old names, which earlier releases know alone."""
    found: Callable[..., Any] = getattr(dist, new, None) or getattr(dist, old)
    return found


_all_gather_single = _verb("all_gather_single", "all_gather_into_tensor")
_reduce_scatter_single = _verb("reduce_scatter_single", "reduce_scatter_tensor")


class OneHopCommunicator(Communicator):
    """A rank's end of a gloo group. `members[i]` is the world's name for rank i of the group.

    Bytes are what travels, so every dtype works.
    """

    def __init__(self, group: Any, *, name: str, rank: int, members: list[int]) -> None:
        super().__init__(name=name, rank=rank, size=len(members))
        self._group = group
        self._members = members

    def close(self) -> None:
        """Leave the process group; where both groups are the world's, the first to close takes it along."""
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _gather(self, call: Call, x: Tensor) -> Tensor:
        return self._transpose(call, x.expand(self.size, *x.shape).contiguous())

    def _transpose(self, call: Call, x: Tensor) -> Tensor:
        sent = _as_bytes(x)
        out = torch.empty_like(sent)
        dist.all_to_all_single(out, sent, group=self._group)
        return out.view(x.dtype).view(x.shape)

    def _broadcast(self, x: Tensor, *, src: int) -> Tensor:
        out = x.clone()
        self._fill(_as_bytes(out), src=src)
        return out

    def _broadcast_bytes(self, data: bytes | None, *, src: int) -> bytes:
        """Two messages: the length, which only `src` knows, then the bytes."""
        length = torch.tensor([0 if data is None else len(data)])
        self._fill(length, src=src)
        payload = bytearray(int(length)) if data is None else bytearray(data)
        if payload:
            self._fill(torch.frombuffer(payload, dtype=torch.uint8), src=src)
        return bytes(payload)

    def _barrier(self) -> None:
        self._gather(Call(Verb.BARRIER), torch.zeros(1, dtype=torch.uint8))

    def _fill(self, x: Tensor, *, src: int) -> None:
        dist.broadcast(x, src=self._members[src], group=self._group)


class NativeCommunicator(OneHopCommunicator):
    """A rank's end of an NCCL group: the library's own verbs, tensors on the rank's device."""

    def _gather(self, call: Call, x: Tensor) -> Tensor:
        out = x.new_empty((self.size * x.numel(),))
        _all_gather_single(out, x.view(-1), group=self._group)
        return out.view(self.size, *x.shape)

    def _sum(self, x: Tensor) -> Tensor:
        out = x.clone()
        dist.all_reduce(out, group=self._group)
        return out

    def _sum_of_parts(self, call: Call, parts: Tensor) -> Tensor:
        out = torch.empty_like(parts[0])
        _reduce_scatter_single(out.view(-1), parts.view(-1), group=self._group)
        return out

    def _barrier(self) -> None:
        dist.barrier(group=self._group)


def _require_nccl(ranks: int) -> None:
    if not dist.is_nccl_available():
        raise UsageError("--comm nccl: this build of torch has no NCCL")
    if (found := torch.cuda.device_count()) < ranks:
        raise UsageError(f"--comm nccl: {ranks} ranks need a CUDA device each, found {found}")


def _as_bytes(x: Tensor) -> Tensor:
    """The same memory, flat: uint8 is a dtype that every library moves."""
    return x.view(-1).view(torch.uint8)


class TorchPlumbing:
    """The listening socket at which the ranks of a topology find each other; loopback only, so one host."""

    def __init__(self, config: EngineConfig, listener: socket.socket, *, native: bool = False) -> None:
        self._config = config
        self._listener = listener
        self._native = native or config.comm is CommBackend.NCCL
        self._groups = dcp_groups(config.parallel())

    @classmethod
    def create(cls, config: EngineConfig, *, native: bool = False) -> Self:
        """Open the socket; call it once, before any rank starts. `native`: library verbs on gloo too.

        Raises UsageError for NCCL where torch has none, or where a rank would find no device.
        """
        if config.comm is CommBackend.NCCL:
            _require_nccl(config.tp)
        listener = socket.socket()
        listener.bind((_HOST, 0))
        listener.listen(config.tp)
        return cls(config, listener, native=native)

    @classmethod
    def adopt(cls, config: EngineConfig, fds: tuple[int, ...]) -> Self:
        """The plumbing of a parent that passed its `fds` on."""
        (fd,) = fds
        return cls(config, socket.socket(fileno=fd))

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that a spawned rank must inherit; a forked one has them anyway."""
        return (self._listener.fileno(),)

    def connect(self, rank: int) -> Comms:
        """Both communicators of TP rank `rank`; blocks until all ranks of the topology have called it."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            _BACKENDS.get(self._config.comm, "gloo"),
            store=self._store(rank),
            rank=rank,
            world_size=self._config.tp,
            timeout=_TIMEOUT,
        )
        kind = NativeCommunicator if self._native else OneHopCommunicator
        world = list(range(self._config.tp))
        tp = kind(dist.group.WORLD, name="tp", rank=rank, members=world)
        members, group = self._dcp_group(rank)
        return Comms(tp=tp, dcp=kind(group, name="dcp", rank=members.index(rank), members=members))

    def _store(self, rank: int) -> Any:
        return dist.TCPStore(
            _HOST,
            self._listener.getsockname()[1],
            self._config.tp,
            is_master=rank == 0,
            timeout=_TIMEOUT,
            wait_for_workers=False,
            # The store closes what it is given.
            master_listen_fd=os.dup(self._listener.fileno()) if rank == 0 else None,
        )

    def _dcp_group(self, rank: int) -> tuple[list[int], Any]:
        """The DCP group of `rank` and its process group: none for a group of one, the world's for all."""
        mine = next(group for group in self._groups if rank in group)
        if len(mine) == 1:
            return mine, None
        if len(mine) == self._config.tp:
            return mine, dist.group.WORLD
        made = [
            dist.new_group(group, timeout=_TIMEOUT) for group in self._groups
        ]  # all ranks make all groups
        return mine, made[self._groups.index(mine)]

    def close(self) -> None:
        """Close the socket in this process; the store that rank 0 serves stays up."""
        self._listener.close()
