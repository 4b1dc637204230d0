"""What a transport is: a decode rank offers slots, a prefill rank writes a payload into a slot that it has credit for.

The decode rank opens a `Window` for each prefill rank and sends its `offer`; that rank opens a `Writer` on it. Who may
use a slot when is not decided here: credit is, and so is back-pressure, which is therefore the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from harness.errors import HarnessError

# What a decode rank may offer, since a writer maps or allocates as much: far more than receivers do (1 MiB, or a few
# rows of the largest models).
MAX_OFFER_BYTES = 256 << 20


class TransportError(HarnessError):
    """This prefill rank cannot write where the decode rank offers; says what each of them would need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSizes:
    """`slots` payloads may be under way to one decode rank at a time, each of at most `slot_bytes`."""

    slots: int
    slot_bytes: int

    @classmethod
    def of(cls, offer: dict[str, Any]) -> SlotSizes:
        """What an offer says of its size; raises TransportError naming a value that is none, or too large."""
        for name in ("slots", "slot_bytes"):
            if type(offer.get(name)) is not int or offer[name] < 1:
                raise TransportError(f"{name} of an offer is {offer.get(name)!r}; expected a number from 1")
        sizes = cls(slots=offer["slots"], slot_bytes=offer["slot_bytes"])
        if sizes.total_bytes > MAX_OFFER_BYTES:
            raise TransportError(
                f"{sizes.slots} slots of {sizes.slot_bytes} B are offered; allowed: {MAX_OFFER_BYTES} B in all"
            )
        return sizes

    @property
    def total_bytes(self) -> int:
        return self.slots * self.slot_bytes

    def span(self, slot: int, size: int) -> slice:
        """Bytes of the first `size` bytes of a slot, counted from the first slot; raises TransportError outside it."""
        if not 0 <= slot < self.slots or not 0 <= size <= self.slot_bytes:
            raise TransportError(
                f"{size} B for slot {slot}, but there are {self.slots} slots of {self.slot_bytes} B"
            )
        return slice(slot * self.slot_bytes, slot * self.slot_bytes + size)


class Window(Protocol):
    """Decode rank: the slots offered to one prefill rank. Only one thread uses it."""

    @property
    def offer(self) -> dict[str, Any]:
        """What that rank must know, as JSON values: `slots`, `slot_bytes`, and where they are."""
        ...

    def payload(self, slot: int, size: int, inline: bytes | None) -> bytes | memoryview:
        """The bytes of a block, valid until its slot is granted again; `inline` came with the message.

        Raises TransportError where there are none of this size.
        """
        ...

    def close(self) -> None:
        """Take the offer back; nothing that `payload` returned may still be in use."""
        ...


class Writer(Protocol):
    """Prefill rank: the slots that one decode rank offers. Only one thread uses it."""

    @property
    def sizes(self) -> SlotSizes: ...

    def write(self, slot: int, payload: bytes) -> bytes | None:
        """Begin to put a payload into a slot that is free; returns what must go with the message instead."""
        ...

    def written(self, slot: int) -> bool:
        """Whether the decode rank would now see all of it. Raises TransportError where it never will."""
        ...

    def close(self) -> None:
        """Let go of the slots; whatever was under way may or may not arrive."""
        ...


class Transport(Protocol):
    """One way for payload, opened once in a process. Only one thread uses it."""

    def window(self, sizes: SlotSizes) -> Window: ...

    def writer(self, offer: dict[str, Any]) -> Writer:
        """Raises TransportError where the offer cannot be reached from here."""
        ...

    def progress(self) -> bool:
        """Decode rank: help what is under way to this rank along; whether that must be asked for again and again."""
        ...

    def close(self) -> None: ...
