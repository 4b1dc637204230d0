"""A fake engine with the client's verbs: it obeys the rules of DCP unless told to break one.

Answers are a fixed function of the prompt, rows are dealt out to ranks one token at a time, admission counts
pages; each fault below is one rule broken, so that a check can be shown to see just that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fake_answers import FakeText

from harness.engines import Answer, Completion, GenerateRequest, KVRows, RankInfo, ServerInfo
from harness.engines.base import HeldRow, InFlight, RankRows
from harness.errors import RequestRefusedError
from harness.topology import ParallelConfig, ParallelState

PAGE = 4


@dataclass
class FakeEngine:
    """`faults` are names of broken rules; see where each is asked for."""

    tp: int = 4
    dcp: int = 4
    rows: int = 64
    row_bytes: int = 512
    backend: str = "ag_rs"
    faults: frozenset[str] = frozenset()
    model: str = "a/chat-model"
    # What every running request has been answered so far.
    generated: tuple[int, ...] = ()
    collectives: int = 0
    bursts: int = 0
    flights: dict[str, GenerateRequest] = field(default_factory=dict)
    text: FakeText = field(init=False)

    def __post_init__(self) -> None:
        self.text = FakeText(self.faults)

    def has(self, fault: str) -> bool:
        return fault in self.faults

    @property
    def total(self) -> int:
        return self.rows * self.dcp

    def server_info(self) -> ServerInfo:
        ranks = None if self.has("no-proof") else tuple(self._rank(rank) for rank in range(self.tp))
        return ServerInfo(
            max_total_num_tokens=self.rows if self.has("per-rank-total") else self.total,
            tp_size=self.tp,
            dcp_size=self.dcp,
            page_size=PAGE,
            interleave=1,
            dcp_comm_backend=self.backend,
            nonce="n",
            running=1 if self.has("stuck") else 0,
            waiting=0,
            context_length=64 if self.has("short-context") else 8192,
            capped_by_argument=self.has("argument-cap"),
            ranks=ranks,
            raw={},
            model=self.model,
        )

    def _rank(self, rank: int) -> RankInfo:
        group = tuple(range(rank - rank % self.dcp, rank - rank % self.dcp + self.dcp))
        if self.has("strided"):
            stride = self.tp // self.dcp
            group = tuple(range(rank % stride, self.tp, stride))
        size = 1 if self.has("silent-off") else self.dcp
        merge = "reduce_scatter" if self.backend == "ag_rs" else "all_to_all"
        done = 0 if self.has("no-collectives") else self.collectives
        uneven = 1 if self.has("uneven") and rank == self.tp - 1 else 0
        return RankInfo(
            tp_rank=rank,
            pid=1000 if self.has("one-process") else 1000 + rank,
            attn_dcp_rank=0 if size == 1 else group.index(rank),
            attn_dcp_size=size,
            dcp_group=group,
            collectives={
                "dcp": {"all_gather": done, merge: done + uneven * (done > 0)},
                "tp": {"all_reduce": done},
            },
            kv_rows=self.rows - (PAGE if self.has("uneven-rows") and rank == 1 else 0),
            kv_rows_free=self.rows - (3 if self.has("leak") and rank == 2 else 0),
            kv_row_bytes=self.row_bytes,
            sources=self._sources(rank),
        )

    def _sources(self, rank: int) -> dict[str, Any] | None:
        """What a rank tells of its sources: equal ones, read in time."""
        if self.has("no-sources"):
            return None
        config = ParallelConfig(tp_size=self.tp, dcp_size=self.dcp)
        state = ParallelState.from_config(config, tp_rank=rank)
        told: dict[str, Any] = {
            "seed": asdict(config),
            "ps": asdict(state),
            "live": asdict(state),
            "early_reads": [],
        }
        if self.has("ps-early"):
            told["ps"] |= {"attn_dcp_size": 1, "attn_dcp_rank": 0}
        if self.has("no-group"):
            told["live"] = None
        if self.has("ps-impossible") and rank == 2:
            told["ps"] |= {"attn_dcp_rank": self.dcp}
        if self.has("two-of-a-rank") and rank == 2:
            one = asdict(ParallelState.from_config(config, tp_rank=1))
            told |= {"ps": one, "live": one}
        if self.has("early-read") and rank in (0, 2):
            told["early_reads"] = [
                "runner.py:7: __init__ read dcp_enabled before init: False then, True later"
            ]
        if self.has("six-early-reads") and rank in (1, 2, 5, 6, 7):
            told["early_reads"] = [f"a.py:{line}" for line in range(6)]
        if self.has("no-seed") and rank == 1:
            del told["seed"]
        return told

    def generate(self, request: GenerateRequest) -> Answer:
        self._admit(request)
        self.collectives += 1
        return self._answer(request)

    def generate_batch(self, requests: list[GenerateRequest]) -> list[Answer]:
        self.bursts += 1
        answers = [self.generate(request) for request in requests]
        if self.has("burst-differs") and self.bursts > 1:
            answers[-1] = replace(answers[-1], tokens=(0,) * len(answers[-1].tokens))
        return answers

    def complete(
        self, prompt: str, *, max_new_tokens: int, stop: Sequence[str] = (), temperature: float = 0.0
    ) -> Completion:
        return self.text.complete(prompt, max_new_tokens=max_new_tokens, stop=tuple(stop))

    def _admit(self, request: GenerateRequest) -> None:
        page = PAGE * self.dcp
        pages = -(-len(request.input_ids) // page)
        limit = self.rows if self.has("per-rank-cap") else self.total
        if self.has("no-cap"):
            return
        if self.has("page-short"):
            pages -= 1
        if pages * page + request.max_new_tokens + page >= limit:
            raise RequestRefusedError("too long", status=500 if self.has("crash-on-long") else 400)

    def _answer(self, request: GenerateRequest) -> Answer:
        draw = random.Random(repr(request.input_ids))
        count = request.max_new_tokens - (1 if self.has("short-answer") else 0)
        tokens = [draw.randrange(256) for _ in range(count)]
        logprobs = [-draw.random() - 0.1 for _ in tokens]
        if self.has("other-token") and len(request.input_ids) > 4:
            tokens[-1] ^= 1
        if self.has("logprob-drift"):
            logprobs[-1] -= 0.02
        if self.has("nan"):
            logprobs[0] = float("nan")
        return Answer(
            tokens=tuple(tokens),
            logprobs=tuple(logprobs),
            prompt_logprobs=tuple(-draw.random() for _ in request.input_ids[1:])
            if request.prompt_logprobs
            else (),
            finish_reason="abort" if self.has("short-answer") else "length",
            prompt_tokens=len(request.input_ids),
        )

    def stream(self, request: GenerateRequest, *, rid: str) -> Iterator[int]:
        self.flights[rid] = request
        yield 1
        while rid in self.flights:
            yield 2

    def abort(self, rid: str) -> None:
        self.flights.pop(rid, None)

    def flush_cache(self) -> None:
        pass

    def kv_rows(self) -> KVRows:
        if self.has("no-kv-rows"):
            raise RequestRefusedError("there is no /kv_rows", status=404)
        requests = tuple(
            InFlight(
                rid=rid,
                index=index,
                tokens=(*request.input_ids, *self.generated),
                kv_len=len(request.input_ids) + len(self.generated),
                pages=(1 + 9 * index, 3 + 9 * index, 2 + 9 * index),
            )
            for index, (rid, request) in enumerate(sorted(self.flights.items()))
        )
        if self.has("lost-request"):
            requests = requests[1:]
        ranks = tuple(self._rows(rank, requests) for rank in range(self.tp))
        return KVRows(page_size=PAGE, dcp_size=self.dcp, interleave=1, requests=requests, ranks=ranks)

    def _rows(self, tp_rank: int, requests: tuple[InFlight, ...]) -> RankRows:
        rank = tp_rank % self.dcp
        # A permutation of owners changes no output: attention sums over all of them.
        mine = (rank + 1) % self.dcp if self.has("permuted") else rank
        held = tuple(
            HeldRow(row=row, index=request.index, position=position, token=request.tokens[position])
            for request in requests
            for position, row in self._mine(request, mine)
        )
        return RankRows(
            tp_rank=tp_rank, attn_dcp_rank=rank, rows=held, free_rows=0, poisoned=not self.has("scribble")
        )

    def _mine(self, request: InFlight, rank: int) -> list[tuple[int, int]]:
        page = PAGE * self.dcp
        return [
            (p, request.pages[p // page] * PAGE + p % page // self.dcp)
            for p in range(request.kv_len)
            if p % self.dcp == rank
        ]

    def wait_until(self, condition: Callable[[], bool], *, seconds: float, every_s: float = 0.05) -> bool:
        return condition()
