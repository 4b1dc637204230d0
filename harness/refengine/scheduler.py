"""Continuous batching without I/O: which requests run, in which pages, and what the next step computes.

Every rank holds one scheduler and feeds it the same events in the same order, so all hold the same state and
no rank is told what to do. A step is: `commit` the tokens sampled for the batch planned before, `add`, `abort`,
`bind`, `begin` and `release` what arrived, `take_freed` for the pool, `plan` the next batch, `take_admitted`.

Admission is first come, first served, and reserves the pages of a request's whole length, prompt and answer,
so that no running request is ever sent back. Prompts are computed in chunks; while some are, steps alternate
between chunks and decoding, so that a long prompt does not stall the answers in flight.

Of a request that two engines share, the one that hands over reserves and computes the prompt alone, and holds it
until it is released. It queues a request only once that is bound, which means that the other engine has admitted it:
so what is held here never waits for room there, and two engines with different orders cannot block each other.
Failure rule: what can never fit is refused by `add` with the numbers; everything else is answered in full.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from harness.errors import UsageError
from harness.refengine.allocator import PageAllocator
from harness.refengine.batch import Batch, ForwardMode, SequenceChunk
from harness.refengine.requests import FinishType, GenerateRequest, Progress, beyond_context
from harness.topology import Capacity, KVLayout, request_fits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a scheduler. `max_positions` is the model's longest context, `eos_id` its end token."""

    capacity: Capacity
    layout: KVLayout
    chunked_prefill_size: int
    max_running_requests: int
    max_positions: int
    eos_id: int


class Stage(StrEnum):
    """What a request that holds pages waits for: its next step, its prompt's KV from elsewhere, or that its own has
    arrived there."""

    COMPUTING = "computing"
    RECEIVING = "receiving"
    HANDING_OVER = "handing-over"


@dataclass(slots=True, kw_only=True)
class Running:
    """A request that holds pages. `tokens` is prompt then answer; the first `kv_len` are in the pool, save that of a
    prompt that is being received nothing counts before all of it is there."""

    request: GenerateRequest
    index: int
    pages: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    kv_len: int = 0
    stage: Stage = Stage.COMPUTING

    @property
    def prompt_len(self) -> int:
        return len(self.request.tokens)

    @property
    def in_prefill(self) -> bool:
        return self.kv_len < self.prompt_len

    @property
    def num_answered(self) -> int:
        return len(self.tokens) - self.prompt_len


class Scheduler:
    """`unbound` and `waiting` in order of arrival there, `running` in order of admission, `planned` the batch in
    flight."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        pages = limits.capacity.max_total_num_tokens // limits.layout.widened_page_size
        self.allocator = PageAllocator(pages)
        self.unbound: dict[str, GenerateRequest] = {}
        self.waiting: dict[str, GenerateRequest] = {}
        self.running: dict[str, Running] = {}
        self.planned: Batch | None = None
        self._free_indices = list(range(limits.max_running_requests))
        self._freed: list[int] = []
        self._admitted: list[Running] = []
        self._decode_next = False

    @property
    def idle(self) -> bool:
        """Nothing is held, nothing waits and nothing is to be committed."""
        return not (self.unbound or self.waiting or self.running or self.planned)

    @property
    def num_waiting(self) -> int:
        """Requests that hold no pages."""
        return len(self.unbound) + len(self.waiting)

    def add(self, request: GenerateRequest) -> None:
        """Queue a request. Raises UsageError where it can never run, or for a rid in use."""
        if self.find(request.rid) is not None:
            raise UsageError(f"rid {request.rid!r} is in use")
        if refusal := refuse(request, limits=self.limits):
            raise UsageError(refusal)
        queue = self.unbound if request.hands_over else self.waiting
        queue[request.rid] = request

    def find(self, rid: str) -> GenerateRequest | None:
        """The request of this rid, wherever it stands; None where there is none."""
        if rid in self.running:
            return self.running[rid].request
        return self.waiting.get(rid) or self.unbound.get(rid)

    def abort(self, rid: str) -> list[Progress]:
        """End a request now, waiting or running; nothing if it is unknown. Not between plan and commit."""
        if rid in self.running:
            self._release(self.running[rid])
        elif self.waiting.pop(rid, None) is None and self.unbound.pop(rid, None) is None:
            return []
        return [Progress(rid=rid, token=None, finish=FinishType.ABORT)]

    def bind(self, rid: str) -> None:
        """Queue what is handed over, now that its place is reserved there. Nothing if it has been aborted."""
        if request := self.unbound.pop(rid, None):
            self.waiting[rid] = request

    def begin(self, rid: str, token: int) -> list[Progress]:
        """The prompt's KV has been received, and `token` is the first of the answer. Nothing after an abort."""
        sequence = self._in_stage(rid, Stage.RECEIVING)
        if sequence is None:
            return []
        sequence.stage = Stage.COMPUTING
        sequence.kv_len = sequence.prompt_len
        return [self._append(sequence, token)]

    def release(self, rid: str) -> list[Progress]:
        """End what has been handed over: this engine's part of its answer is one token long. Nothing after an abort."""
        sequence = self._in_stage(rid, Stage.HANDING_OVER)
        if sequence is None:
            return []
        self._release(sequence)
        return [Progress(rid=rid, token=None, finish=FinishType.LENGTH)]

    def plan(self) -> Batch | None:
        """Admit what fits and choose the next step's work; None where there is none."""
        self._admit()
        computing = [one for one in self.running.values() if one.stage is Stage.COMPUTING]
        prefilling = [sequence for sequence in computing if sequence.in_prefill]
        decoding = [sequence for sequence in computing if not sequence.in_prefill]
        if prefilling and not (decoding and self._decode_next):
            self._decode_next = True
            chunks = self._prefill_chunks(prefilling)
            self.planned = Batch(mode=ForwardMode.EXTEND, chunks=chunks)
        elif decoding:
            self._decode_next = False
            chunks = tuple(_chunk(sequence, count=1) for sequence in decoding)
            self.planned = Batch(mode=ForwardMode.DECODE, chunks=chunks)
        else:
            self.planned = None
        return self.planned

    def commit(self, sampled: Mapping[str, int]) -> list[Progress]:
        """Account for the planned batch: its tokens are in the pool now, and `sampled` has a token for each
        request whose prompt is complete. Raises KeyError where one is missing."""
        batch, self.planned = self.planned, None
        if batch is None:
            return []
        progress: list[Progress] = []
        for chunk in batch.chunks:
            sequence = self.running[chunk.rid]
            sequence.kv_len += len(chunk.tokens)
            if not sequence.in_prefill:
                progress.append(self._append(sequence, sampled[chunk.rid]))
        return progress

    def take_freed(self) -> tuple[int, ...]:
        """Pages freed since the last call. The pool must forget them before the next forward."""
        freed, self._freed = tuple(self._freed), []
        return freed

    def take_admitted(self) -> tuple[Running, ...]:
        """What has got pages since the last call."""
        admitted, self._admitted = tuple(self._admitted), []
        return admitted

    def _admit(self) -> None:
        while self.waiting and self._free_indices:
            request = next(iter(self.waiting.values()))
            needed = self.limits.layout.num_pages(len(request.tokens) + _reserved_answer(request))
            if needed > self.allocator.num_free:
                return
            del self.waiting[request.rid]
            sequence = Running(
                request=request,
                index=heapq.heappop(self._free_indices),
                pages=self.allocator.take(needed),
                tokens=list(request.tokens),
                stage=Stage.RECEIVING if request.takes_over else Stage.COMPUTING,
            )
            self.running[request.rid] = sequence
            self._admitted.append(sequence)

    def _in_stage(self, rid: str, stage: Stage) -> Running | None:
        sequence = self.running.get(rid)
        return sequence if sequence is not None and sequence.stage is stage else None

    def _prefill_chunks(self, sequences: Sequence[Running]) -> tuple[SequenceChunk, ...]:
        chunks: list[SequenceChunk] = []
        budget = self.limits.chunked_prefill_size
        for sequence in sequences:
            count = min(budget, sequence.prompt_len - sequence.kv_len)
            if count == 0:
                break
            chunks.append(_chunk(sequence, count=count))
            budget -= count
        return tuple(chunks)

    def _append(self, sequence: Running, token: int) -> Progress:
        sequence.tokens.append(token)
        finish: FinishType | None = None
        if sequence.request.hands_over:
            # Whether the answer ends with this token is for the other engine to say.
            sequence.stage = Stage.HANDING_OVER
        elif token == self.limits.eos_id and not sequence.request.ignore_eos:
            finish = FinishType.STOP
        elif sequence.num_answered >= sequence.request.max_new_tokens:
            finish = FinishType.LENGTH
        if finish is not None:
            self._release(sequence)
        return Progress(rid=sequence.request.rid, token=token, finish=finish)

    def _release(self, sequence: Running) -> None:
        del self.running[sequence.request.rid]
        self.allocator.give_back(sequence.pages)
        self._freed.extend(sequence.pages)
        heapq.heappush(self._free_indices, sequence.index)


def wants_token(batch: Batch, running: Mapping[str, Running]) -> list[bool]:
    """For each chunk whether a token is sampled from its last row: for a prompt, only its last chunk."""
    return [chunk.start + len(chunk.tokens) >= running[chunk.rid].prompt_len for chunk in batch.chunks]


def refuse(request: GenerateRequest, *, limits: Limits) -> str | None:
    """Why a request can never run on this engine, naming the numbers; None where it can."""
    if refusal := beyond_context(request, limits.max_positions):
        return refusal
    prompt, new = len(request.tokens), _reserved_answer(request)
    if request_fits(input_len=prompt, max_new_tokens=new, layout=limits.layout, capacity=limits.capacity):
        return None
    page, total = limits.layout.widened_page_size, limits.capacity.max_total_num_tokens
    return (
        f"input_len {prompt} (rounded up to whole pages of {page}) + max_new_tokens {new} + one page of "
        f"{page} must stay below max_total_num_tokens {total}; the request can never fit"
    )


def _reserved_answer(request: GenerateRequest) -> int:
    """Tokens of the answer that the pool needs room for."""
    return 0 if request.hands_over else request.max_new_tokens


def _chunk(sequence: Running, *, count: int) -> SequenceChunk:
    start = sequence.kv_len
    return SequenceChunk(
        rid=sequence.request.rid,
        index=sequence.index,
        tokens=tuple(sequence.tokens[start : start + count]),
        start=start,
        pages=sequence.pages,
        all_logits=sequence.in_prefill and sequence.request.wants_prompt_logprobs,
    )
