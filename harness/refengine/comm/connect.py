"""Where ranks get their communicators: plumbing before they start, and in each rank one function.

That function is a seam, so that a wrapper can be put around every communicator from outside.
"""

from __future__ import annotations

from harness.errors import UsageError
from harness.refengine.comm.base import Comms, Plumbing
from harness.refengine.comm.shm import ShmPlumbing
from harness.refengine.comm.torch_dist import TorchPlumbing
from harness.refengine.config import CommBackend, EngineConfig
from harness.refengine.seams import seam

# Backends that join processes; `threads` needs none, a `ThreadWorld` is its own plumbing.
_PLUMBING: dict[CommBackend, type[ShmPlumbing] | type[TorchPlumbing]] = {
    CommBackend.SHM: ShmPlumbing,
    CommBackend.GLOO: TorchPlumbing,
    CommBackend.NCCL: TorchPlumbing,
}


def create_plumbing(config: EngineConfig) -> ShmPlumbing | TorchPlumbing:
    """What `config.comm` needs before ranks start; whoever starts them calls this, and closes it after.

    Forked ranks use the object as it is, spawned ones inherit its `fds` and call `adopt_plumbing`.
    Raises UsageError where this machine cannot do it, or for `threads`.
    """
    return _plumbing_of(config).create(config)


def adopt_plumbing(config: EngineConfig, fds: tuple[int, ...]) -> ShmPlumbing | TorchPlumbing:
    """In a spawned rank: the plumbing whose `fds` were inherited, same numbers and same order."""
    return _plumbing_of(config).adopt(config, fds)


def _plumbing_of(config: EngineConfig) -> type[ShmPlumbing] | type[TorchPlumbing]:
    if config.comm not in _PLUMBING:
        allowed = ", ".join(backend.value for backend in _PLUMBING)
        raise UsageError(f"--comm {config.comm.value} cannot join processes; allowed: {allowed}")
    return _PLUMBING[config.comm]


@seam("make-communicators")
def make_communicators(config: EngineConfig, *, rank: int, plumbing: Plumbing) -> Comms:
    """Connect TP rank `rank` to its groups; called once in each rank before anything else talks.

    `config` is there for whoever patches the seam; the plumbing was made from the same one.
    """
    return plumbing.connect(rank)
