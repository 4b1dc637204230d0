"""What one engine launch is made of: the launch arguments, validated once and passed to every process.

The launcher turns the command line into an `EngineConfig`, and hands it as JSON to the zygote, the ranks and
the HTTP front; no process reads arguments of its own. Bad values raise `UsageError` before anything starts.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from harness.errors import UsageError
from harness.topology import KVLayout, ParallelConfig


class CommBackend(StrEnum):
    """How ranks exchange tensors. `threads` is in-process only and never chosen by a launch."""

    SHM = "shm"
    GLOO = "gloo"
    NCCL = "nccl"
    THREADS = "threads"


class DcpCommBackend(StrEnum):
    """How partial attention outputs of a DCP group are merged at decode."""

    AG_RS = "ag_rs"
    A2A = "a2a"


class AttentionBackend(StrEnum):
    """Who computes attention over the pool: torch's own operations, or Triton kernels (interpreted on CPU)."""

    TORCH = "torch"
    TRITON = "triton"


class DisaggregationMode(StrEnum):
    """NULL serves whole requests; PREFILL computes prompts and hands their KV over, DECODE takes over and answers."""

    NULL = "null"
    PREFILL = "prefill"
    DECODE = "decode"


class TransferBackend(StrEnum):
    """How KV travels from prefill to decode ranks; both engines of a pair must be given the same."""

    SHM = "shm"
    TCP = "tcp"
    NIXL = "nixl"


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class StartMethod(StrEnum):
    """Fork from a zygote that has imported torch (0.1 s for 8 ranks), or a fresh interpreter per rank."""

    FORK = "fork"
    SPAWN = "spawn"


DTYPES = ("fp32", "bf16")
# What torch's generators take, whatever the sign.
MAX_SEED = 2**63 - 1
# Finite in every dtype: a product with it may overflow, but no row starts as infinity or NaN.
MAX_POISON = 1e38


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Launch arguments of the reference engine; sizes are in tokens unless the name says bytes.

    Raises UsageError (or TopologyError, which is one) naming the argument, the value and what is allowed.
    """

    model: str = "builtin:random-gqa"
    dtype: str = "fp32"
    tp: int = 1
    dcp: int = 1
    page_size: int = 16
    interleave: int = 1
    attention_backend: AttentionBackend = AttentionBackend.TORCH
    dcp_comm_backend: DcpCommBackend = DcpCommBackend.AG_RS
    comm: CommBackend = CommBackend.SHM
    device: Device = Device.CPU
    start_method: StartMethod = StartMethod.FORK
    # Bytes of KV pool per rank: 2 MiB hold 4,096 rows of the default model at dcp 4 (512 B a row).
    kv_bytes: int = 2 << 20
    # Aggregate cap on top of what kv_bytes allows; None leaves kv_bytes alone to decide.
    max_total_tokens: int | None = None
    chunked_prefill_size: int = 256
    # One more than any batch size a check sends (257), so that it is the pool that limits, not this.
    max_running_requests: int = 320
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    kv_rows: bool = True
    poison: float = 1e4
    nonce: str = ""
    served_model_name: str = ""
    disaggregation_mode: DisaggregationMode = DisaggregationMode.NULL
    disaggregation_transfer_backend: TransferBackend = TransferBackend.TCP
    # Seconds in which a handover must move on, else it is given up: SGLang's two limits are 300 s each; our prompts
    # take a hundredth of the time of theirs.
    transfer_timeout: float = 60.0

    def __post_init__(self) -> None:
        self.parallel()
        self.layout()
        for name in ("kv_bytes", "chunked_prefill_size", "max_running_requests"):
            if getattr(self, name) < 1:
                raise UsageError(f"{_flag(name)} is {getattr(self, name)}; it must be 1 or more")
        if not -MAX_SEED <= self.seed <= MAX_SEED:
            raise UsageError(f"--seed is {self.seed}; allowed: -{MAX_SEED} to {MAX_SEED}")
        if not abs(self.poison) <= MAX_POISON:
            raise UsageError(f"--poison is {self.poison}; allowed: -{MAX_POISON} to {MAX_POISON}")
        if not 0 < self.transfer_timeout < math.inf:
            raise UsageError(f"--transfer-timeout is {self.transfer_timeout}; it must be above 0 seconds")
        if self.dtype not in DTYPES:
            raise UsageError(f"--dtype is {self.dtype!r}; allowed: {', '.join(DTYPES)}")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"--port is {self.port}; allowed: 0 (any free port) to 65535")
        if self.device is Device.CUDA and self.comm is not CommBackend.NCCL:
            raise UsageError(f"--device cuda needs --comm nccl, found --comm {self.comm.value}")
        if self.device is Device.CPU and self.comm is CommBackend.NCCL:
            raise UsageError("--comm nccl needs --device cuda; on CPU use shm or gloo")
        if self.device is Device.CUDA and self.start_method is StartMethod.FORK:
            raise UsageError("--device cuda needs --start-method spawn: CUDA does not survive a fork")

    def parallel(self) -> ParallelConfig:
        """The topology; raises TopologyError where it cannot be built."""
        return ParallelConfig(tp_size=self.tp, dcp_size=self.dcp)

    def layout(self) -> KVLayout:
        """Where tokens live; raises TopologyError where page size and interleave do not fit."""
        return KVLayout(dcp_size=self.dcp, page_size=self.page_size, interleave=self.interleave)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EngineConfig:
        """The inverse of `to_json`; unknown keys raise UsageError, since both ends are the same release."""
        values = json.loads(text)
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise UsageError(f"unknown engine arguments: {', '.join(unknown)}")
        typed: dict[str, Any] = {
            key: _ENUMS[key](value) if key in _ENUMS else value for key, value in values.items()
        }
        return cls(**typed)


_ENUMS: dict[str, type[StrEnum]] = {
    "attention_backend": AttentionBackend,
    "dcp_comm_backend": DcpCommBackend,
    "disaggregation_mode": DisaggregationMode,
    "disaggregation_transfer_backend": TransferBackend,
    "comm": CommBackend,
    "device": Device,
    "start_method": StartMethod,
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
