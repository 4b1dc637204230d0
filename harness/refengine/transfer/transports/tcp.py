"""TCP: the payload follows in the message itself. Works between any two hosts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.refengine.transfer.transports.base import SlotSizes, TransportError


class TcpTransport:
    """Slots are no more than a count of the messages under way."""

    def window(self, sizes: SlotSizes) -> TcpWindow:
        return TcpWindow(sizes)

    def writer(self, offer: dict[str, Any]) -> TcpWriter:
        return TcpWriter(SlotSizes.of(offer))

    def progress(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to let go of."""


class TcpWindow:
    def __init__(self, sizes: SlotSizes) -> None:
        self._sizes = sizes

    @property
    def offer(self) -> dict[str, Any]:
        return asdict(self._sizes)

    def payload(self, slot: int, size: int, inline: bytes | None) -> bytes | memoryview:
        self._sizes.span(slot, size)
        if inline is None or len(inline) != size:
            found = "no payload" if inline is None else f"a payload of {len(inline)} B"
            raise TransportError(f"a block of {size} B came with {found}")
        return inline

    def close(self) -> None:
        """Nothing to let go of."""


class TcpWriter:
    def __init__(self, sizes: SlotSizes) -> None:
        self.sizes = sizes

    def write(self, slot: int, payload: bytes) -> bytes | None:
        self.sizes.span(slot, len(payload))
        return payload

    def written(self, slot: int) -> bool:
        return True

    def close(self) -> None:
        """Nothing to let go of."""
