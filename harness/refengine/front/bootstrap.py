"""How a call tells an engine of a pair which other engine it shares its prompts with, and how that one is found.

A router sends one body to both: `bootstrap_room`, a number of its own choosing for each prompt, is known to both
sides; the decode engine finds the prefill engine's HTTP at `bootstrap_host` and `bootstrap_port`, and asks there for
its shape and for where its ranks listen. It asks anew for each call, since a restarted engine has other ports.
Failure rule: what the caller got wrong, a pair that cannot work included, is a UsageError; an engine that cannot be
reached or answers oddly is a HandoverError naming its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import httpx
from pydantic import Field

from harness.errors import HandoverError, UsageError
from harness.refengine.config import DisaggregationMode
from harness.refengine.front.call import Prompt
from harness.refengine.front.fields import NonEmpty, Strict, each
from harness.refengine.requests import Handover
from harness.refengine.transfer.events import PeerInfo
from harness.refengine.transfer.handshake import EngineShape, refuse_pair

# A front answers within milliseconds, and does so while its ranks are busy.
PEER_S = 10.0
# More of an answer that is no answer helps nobody.
MAX_TOLD = 300
# What a signed 64-bit integer holds: rooms travel as such.
MAX_ROOM = 2**63 - 1

Port = Annotated[int, Field(ge=1, le=65535)]
Room = Annotated[int, Field(ge=0, le=MAX_ROOM)]


# Which fields an engine needs, by its mode.
_NEEDED = {
    DisaggregationMode.NULL: (),
    DisaggregationMode.PREFILL: ("bootstrap_room",),
    DisaggregationMode.DECODE: ("bootstrap_room", "bootstrap_host", "bootstrap_port"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """One prompt's share of the fields."""

    bootstrap_room: int | None = None
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None

    def check(self, mode: DisaggregationMode) -> None:
        """Raises UsageError where an engine of this mode needs a field that is missing, or has no use for any."""
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if mode is DisaggregationMode.NULL and given:
            raise UsageError(
                f"{given[0]}: this engine answers alone (--disaggregation-mode null); prefill and decode engines "
                "take it"
            )
        if missing := [name for name in _NEEDED[mode] if name not in given]:
            raise UsageError(
                f"{', '.join(missing)}: missing; this engine does one half of the work (--disaggregation-mode "
                f"{mode.value}): send requests to a router (harness engine route), which names the other engine"
            )


class BootstrapFields(Strict):
    """One value for all prompts, or one for each. A single room stands for itself and those that follow it."""

    bootstrap_host: NonEmpty | list[NonEmpty] | None = None
    bootstrap_port: Port | list[Port] | None = None
    bootstrap_room: Room | list[Room] | None = None

    def bootstraps(self, count: int) -> list[Bootstrap]:
        """The fields of each of `count` prompts. Raises UsageError for a list of another length."""
        columns: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(Bootstrap)}
        if isinstance(room := self.bootstrap_room, int):
            columns["bootstrap_room"] = [(room + i) % (MAX_ROOM + 1) for i in range(count)]
        listed = {name: each(name, value, count) for name, value in columns.items()}
        return [Bootstrap(**{name: values[i] for name, values in listed.items()}) for i in range(count)]


class Pairing:
    """What an engine of this `shape` makes of the bootstrap fields of a call."""

    def __init__(self, shape: EngineShape) -> None:
        self._shape = shape
        # No connection is kept: one to an engine that has been restarted since would fail the next call.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(timeout=PEER_S, limits=limits, trust_env=False)

    async def share(self, prompts: Sequence[Prompt], bootstraps: Sequence[Bootstrap]) -> list[Prompt]:
        """The prompts as this engine's part of the work. Raises UsageError and HandoverError."""
        for bootstrap in bootstraps:
            bootstrap.check(self._shape.mode)
        match self._shape.mode:
            case DisaggregationMode.NULL:
                return list(prompts)
            case DisaggregationMode.PREFILL:
                return [_shared(*pair) for pair in zip(prompts, bootstraps, strict=True)]
        peers = {url: await self._peer(url) for url in dict.fromkeys(map(_url, bootstraps))}
        return [
            _shared(prompt, bootstrap, peer=peers[_url(bootstrap)])
            for prompt, bootstrap in zip(prompts, bootstraps, strict=True)
        ]

    async def _peer(self, url: httpx.URL) -> PeerInfo:
        """The prefill engine at `url`, which can hand over to this one."""
        where = f"the prefill engine at {url.copy_with(path='')}"
        try:
            response = await self._http.get(url)
        except httpx.HTTPError as error:
            raise HandoverError(f"{where} cannot be reached: {str(error) or type(error).__name__}") from error
        if response.status_code != httpx.codes.OK:
            raise HandoverError(f"{where} answered {response.status_code}: {response.text[:MAX_TOLD]}")
        try:
            peer = PeerInfo.from_dict({"host": url.host, **response.json()})
        except (ValueError, TypeError, RecursionError, UsageError) as error:
            raise HandoverError(
                f"{where} answered what no prefill engine of this release does: {error}"
            ) from error
        if refusal := refuse_pair(peer.shape, self._shape):
            raise UsageError(f"{where} cannot hand over to this engine: {refusal}")
        return peer


def _url(bootstrap: Bootstrap) -> httpx.URL:
    """Where the prefill engine tells what it is. Raises UsageError for what is no host."""
    host = str(bootstrap.bootstrap_host)
    try:
        return httpx.URL(scheme="http", host=host, port=bootstrap.bootstrap_port, path="/disaggregation")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise UsageError(f"bootstrap_host is {host!r}, which is no host: {error}") from error


def _shared(prompt: Prompt, bootstrap: Bootstrap, *, peer: PeerInfo | None = None) -> Prompt:
    """This engine's part of a prompt. Without a `peer`, which answers it, stop strings are not this engine's matter."""
    room = bootstrap.bootstrap_room
    if room is None:
        raise ValueError("a bootstrap that has been checked has a room")
    handover = Handover(room=room, peer=None if peer is None else peer.to_dict())
    request = replace(prompt.request, handover=handover)
    return Prompt(request=request, stop=() if peer is None else prompt.stop)
