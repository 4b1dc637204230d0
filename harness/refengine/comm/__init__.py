"""How ranks talk: one `Communicator` interface over shared memory, torch.distributed, or threads."""

from harness.refengine.comm.base import CommError, Comms, Communicator, Plumbing, Verb
from harness.refengine.comm.connect import adopt_plumbing, create_plumbing, make_communicators
from harness.refengine.comm.meeting import WorldEndedError
from harness.refengine.comm.shm import ShmPlumbing
from harness.refengine.comm.threads import ThreadWorld
from harness.refengine.comm.torch_dist import TorchPlumbing
from harness.refengine.comm.world import World, WorldGroup, WorldMaker, WorldRank

__all__ = [
    "CommError",
    "Comms",
    "Communicator",
    "Plumbing",
    "ShmPlumbing",
    "ThreadWorld",
    "TorchPlumbing",
    "Verb",
    "World",
    "WorldEndedError",
    "WorldGroup",
    "WorldMaker",
    "WorldRank",
    "adopt_plumbing",
    "create_plumbing",
    "make_communicators",
]
