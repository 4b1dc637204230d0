"""A fake pair: two fake engines and the verbs of a client of the router before them.

The decode side deals rows out as `FakeEngine` does; both sides count the bytes of the prompts that came through.
Faults of handing over are broken rules here, those of either engine are given to that engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from fake_engine import FakeEngine

from harness.engines import GenerateRequest, KVRows, RankTransfer, ServerInfo
from harness.engines.base import PairInfo, RankInfo

PREFILL, DECODE = "http://prefill", "http://decode"


@dataclass
class FakeSide(FakeEngine):
    """An engine of a pair; `moved` is bytes by (own tp_rank, the other side's). Answers never travel."""

    generated: tuple[int, ...] = (7, 8, 9)

    moved: Counter[tuple[int, int]] = field(default_factory=Counter)

    def close(self) -> None:
        pass

    def _rank(self, rank: int) -> RankInfo:
        told = super()._rank(rank)
        if self.has("no-bytes"):
            return told
        peers = {peer: count for (own, peer), count in self.moved.items() if own == rank}
        total = sum(peers.values())
        return replace(told, transfer=RankTransfer(bytes=total, bytes_by_peer=peers))


@dataclass
class FakeRouter:
    """Everything is the decode side's, but that streams hand their prompt over first."""

    prefill: FakeSide = field(default_factory=lambda: FakeSide(tp=2, dcp=1, row_bytes=1024))
    decode: FakeSide = field(default_factory=FakeSide)
    faults: frozenset[str] = frozenset()
    beside_urls: list[str] = field(default_factory=list)

    def server_info(self) -> ServerInfo:
        pair = None if "no-pair" in self.faults else PairInfo(prefill=(PREFILL,), decode=(DECODE,))
        return replace(self.decode.server_info(), pair=pair)

    def beside(self, url: str) -> FakeSide:
        self.beside_urls.append(url)
        return {PREFILL: self.prefill, DECODE: self.decode}[url]

    def stream(self, request: GenerateRequest, *, rid: str) -> Iterator[int]:
        self._hand_over(len(request.input_ids))
        yield from self.decode.stream(request, rid=rid)

    def abort(self, rid: str) -> None:
        self.decode.abort(rid)

    def flush_cache(self) -> None:
        pass

    def kv_rows(self) -> KVRows:
        return self.decode.kv_rows()

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, every_s: float = 0.05) -> bool:
        return condition()

    def _hand_over(self, length: int) -> None:
        """Each decode rank gets its tokens like cards, half the bytes of each row from either prefill rank."""
        owners = Counter(position % self.decode.dcp for position in range(length))
        for rank in range(self.decode.tp):
            size = owners[rank % self.decode.dcp] * self.decode.row_bytes
            for source in range(self.prefill.tp):
                self._move(source, rank, size // self.prefill.tp)

    def _move(self, source: int, rank: int, size: int) -> None:
        sent = size * (2 if "sent-twice" in self.faults and rank == 0 else 1)
        got = 0 if "lost-on-the-way" in self.faults and rank == 3 else sent
        if "to-a-neighbour" in self.faults:
            rank = (rank + 1) % self.decode.tp
        self.prefill.moved[source, rank] += sent
        self.decode.moved[rank, source] += got
