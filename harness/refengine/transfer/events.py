"""What the moving part of a handover tells the rank, and where a decode rank finds its sources.

A `KVSender` or `KVReceiver` calls `tell` with these from its own thread. Each rid that was opened or expected, and
not dropped, ends with exactly one of `Sent`, `Arrived` and `Failed`; an event that was on its way when its rid was
dropped may still come.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from harness.errors import UsageError
from harness.refengine.requests import Said
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.transfer.told import require_plain


@dataclass(frozen=True, slots=True)
class Bound:
    """Prefill rank: all decode ranks that this one sends to have a place for the prompt."""

    rid: str

    def to_dict(self) -> dict[str, Any]:
        return {"type": Said.BOUND, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Sent:
    """Prefill rank: all decode ranks that this one sends to have what they own; the rows may be freed."""

    rid: str

    def to_dict(self) -> dict[str, Any]:
        return {"type": Said.SENT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Arrived:
    """Decode rank: all that this rank owns is in the pool. `first` is the first token, told to decode rank 0 only."""

    rid: str
    first: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"type": Said.ARRIVED, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Failed:
    """Either side: the handover is over, and the pool is left alone; `why` is a clause that names the other rank."""

    rid: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"type": Said.FAILED, **asdict(self)}


HandoverEvent = Bound | Sent | Arrived | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """A prefill engine as its decode engine sees it: `ports[r]` is where rank r listens on `host`.

    `nonce` tells this launch from any other that is later found at the same address.
    """

    host: str
    shape: EngineShape
    ports: tuple[int, ...]
    nonce: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; without "host" it is the answer of `GET /disaggregation`."""
        return {
            "host": self.host,
            "shape": self.shape.to_dict(),
            "ports": list(self.ports),
            "nonce": self.nonce,
        }

    @classmethod
    def from_dict(cls, values: object) -> PeerInfo:
        """The inverse of `to_dict`. Raises UsageError naming what is missing or odd."""
        require_plain("a prefill engine", values)
        if not isinstance(values, dict):
            raise UsageError(f"a prefill engine is told as {values!r}; expected an object")
        if unlike := sorted(set(values) ^ {"host", "shape", "ports", "nonce"}):
            raise UsageError(f"a prefill engine is told by host, shape, ports and nonce; at odds: {unlike}")
        if odd := [name for name in ("host", "nonce") if not isinstance(values[name], str)]:
            raise UsageError(f"{odd[0]} of a prefill engine is {values[odd[0]]!r}; expected text")
        shape, ports = EngineShape.from_dict(values["shape"]), values["ports"]
        if not isinstance(ports, list) or not all(type(port) is int and 0 < port < 65536 for port in ports):
            raise UsageError(
                f"the transfer ports of a prefill engine are {ports!r}; expected a list of ports"
            )
        if len(ports) != shape.tp_size:
            raise UsageError(f"a prefill engine of tp {shape.tp_size} tells {len(ports)} transfer ports")
        return cls(host=values["host"], shape=shape, ports=tuple(ports), nonce=values["nonce"])
