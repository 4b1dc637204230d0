"""The engines behind an address: those of a pair, found through what its router tells, or the one that answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from harness.engines import EngineClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Clients of the engines of a pair, of which each side may have several."""

    prefill: tuple[EngineClient, ...]
    decode: tuple[EngineClient, ...]

    def named(self) -> Iterator[tuple[str, EngineClient]]:
        """Each engine behind the words that messages call it by; of several on a side with the address."""
        for side, clients in (("prefill", self.prefill), ("decode", self.decode)):
            for client in clients:
                yield f"{side} engine" + (f" {client.url}" if len(clients) > 1 else ""), client


@contextmanager
def sides_behind(client: EngineClient) -> Iterator[Sides | None]:
    """The pair whose router answers at this address; None where one engine answers."""
    told = client.server_info().pair
    if told is None:
        yield None
        return
    with ExitStack() as stack:
        prefill, decode = (
            tuple(stack.enter_context(closing(client.beside(url))) for url in urls)
            for urls in (told.prefill, told.decode)
        )
        yield Sides(prefill=prefill, decode=decode)
