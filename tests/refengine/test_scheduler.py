"""The scheduler, driven by a fake engine that samples known tokens and watches every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.batch import Batch, ForwardMode
from harness.refengine.requests import FinishType, GenerateRequest, Progress
from harness.refengine.scheduler import Limits, Scheduler, refuse, wants_token
from harness.topology import Capacity, KVLayout

EOS = 257


def limits(
    *, rows: int = 16, dcp: int = 2, page_size: int = 2, chunk: int = 5, running: int = 3, context: int = 100
) -> Limits:
    return Limits(
        capacity=Capacity(rows_per_rank=rows, dcp_size=dcp),
        layout=KVLayout(dcp_size=dcp, page_size=page_size),
        chunked_prefill_size=chunk,
        max_running_requests=running,
        max_positions=context,
        eos_id=EOS,
    )


def request(rid: str, *, prompt: int, new: int, ignore_eos: bool = False) -> GenerateRequest:
    return GenerateRequest(rid=rid, tokens=tuple(range(prompt)), max_new_tokens=new, ignore_eos=ignore_eos)


@dataclass
class FakeEngine:
    """Computes batches of one scheduler and checks what must hold in every one of them."""

    scheduler: Scheduler
    eos_after: dict[str, int] = field(default_factory=dict)
    answers: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, FinishType] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    pending: dict[str, int] = field(default_factory=dict)
    in_pool: dict[str, list[int]] = field(default_factory=dict)

    def step(self, *, arrive: tuple[GenerateRequest, ...] = (), abort: tuple[str, ...] = ()) -> Batch | None:
        self.note(self.scheduler.commit(self.pending))
        self.pending = {}
        for one in arrive:
            self.scheduler.add(one)
        for rid in abort:
            self.note(self.scheduler.abort(rid))
        self.scheduler.take_freed()
        batch = self.scheduler.plan()
        if batch is not None:
            self.compute(batch)
        return batch

    def note(self, progress: list[Progress]) -> None:
        for one in progress:
            assert one.rid not in self.ended, "progress after the end"
            if one.token is not None:
                self.answers.setdefault(one.rid, []).append(one.token)
            if one.finish is not None:
                self.ended[one.rid] = one.finish
                self.in_pool.pop(one.rid, None)

    def compute(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.check(batch)
        for chunk, wanted in zip(batch.chunks, wants_token(batch, self.scheduler.running), strict=True):
            self.in_pool.setdefault(chunk.rid, []).extend(chunk.tokens)
            if wanted:
                count = len(self.answers.get(chunk.rid, ()))
                self.pending[chunk.rid] = EOS if self.eos_after.get(chunk.rid) == count else 100 + count

    def check(self, batch: Batch) -> None:
        known = self.scheduler.limits
        assert batch.chunks
        assert len({chunk.rid for chunk in batch.chunks}) == len(batch.chunks)
        assert len({chunk.index for chunk in batch.chunks}) == len(batch.chunks)
        if batch.mode is ForwardMode.DECODE:
            assert all(len(chunk.tokens) == 1 for chunk in batch.chunks)
        else:
            assert 1 <= sum(len(chunk.tokens) for chunk in batch.chunks) <= known.chunked_prefill_size
        assert len(self.scheduler.running) <= known.max_running_requests
        pages = [page for one in self.scheduler.running.values() for page in one.pages]
        assert len(pages) == len(set(pages))
        assert 0 not in pages
        for chunk in batch.chunks:
            # Exactly the next token of what the pool holds, and a place for it.
            assert chunk.start == len(self.in_pool.get(chunk.rid, ()))
            width = known.layout.page_size * known.layout.dcp_size
            assert chunk.start + len(chunk.tokens) <= len(chunk.pages) * width

    def run_dry(self) -> None:
        for _ in range(10_000):
            if self.step() is None and self.scheduler.idle:
                return
        pytest.fail("the scheduler never became idle")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(4, 24),
    dcp=st.sampled_from([1, 2, 4]),
    page_size=st.sampled_from([1, 2, 4]),
    chunk=st.integers(1, 9),
    running=st.integers(1, 6),
)
def test_no_request_is_lost(seed: int, rows: int, dcp: int, page_size: int, chunk: int, running: int) -> None:
    """Whatever arrives and is aborted whenever: each request ends once, in full, and frees its pages."""
    rng = random.Random(seed)
    known = limits(
        rows=rows // page_size * page_size or page_size,
        dcp=dcp,
        page_size=page_size,
        chunk=chunk,
        running=running,
    )
    engine = FakeEngine(Scheduler(known))
    asked: dict[str, GenerateRequest] = {}
    aborted: set[str] = set()
    for number in range(rng.randrange(1, 25)):
        one = request(f"r{number}", prompt=rng.randrange(1, 20), new=rng.randrange(1, 10))
        if rng.random() < 0.3:
            engine.eos_after[one.rid] = rng.randrange(0, 10)
        fits = refuse(one, limits=known) is None
        victims = tuple(rid for rid in asked if rng.random() < 0.1 and rid not in engine.ended)
        aborted.update(victims)
        if fits:
            asked[one.rid] = one
        else:
            with pytest.raises(UsageError):
                Scheduler(known).add(one)
        engine.step(arrive=(one,) if fits else (), abort=victims)
    engine.run_dry()
    assert set(engine.ended) == set(asked)
    for rid, one in asked.items():
        expected = [100 + i for i in range(one.max_new_tokens)]
        if engine.eos_after.get(rid, one.max_new_tokens) < one.max_new_tokens:
            expected = [*expected[: engine.eos_after[rid]], EOS]
        found = engine.answers.get(rid, [])
        if engine.ended[rid] is FinishType.ABORT:
            assert rid in aborted
            assert found == expected[: len(found)]
        else:
            assert found == expected
    assert engine.scheduler.allocator.num_free == engine.scheduler.allocator.num_pages


def test_arrival_order_is_kept_even_when_a_later_one_would_fit() -> None:
    engine = FakeEngine(Scheduler(limits(rows=16, dcp=1, page_size=1, running=8)))
    engine.step(arrive=(request("first", prompt=8, new=2),))
    engine.step(arrive=(request("large", prompt=10, new=2), request("small", prompt=1, new=1)))
    assert list(engine.scheduler.running) == ["first"]
    engine.run_dry()
    started = [chunk.rid for batch in engine.batches for chunk in batch.chunks if chunk.start == 0]
    assert started == ["first", "large", "small"]


def test_decoding_goes_on_while_a_long_prompt_is_computed() -> None:
    engine = FakeEngine(Scheduler(limits(rows=64, dcp=1, page_size=1, chunk=4)))
    engine.step(arrive=(request("short", prompt=2, new=20),))
    engine.step(arrive=(request("long", prompt=40, new=1),))
    engine.run_dry()
    modes = [batch.mode for batch in engine.batches[1:20]]
    assert all(first is not second for first, second in pairwise(modes))


def test_eos_is_a_token_like_others_when_it_is_to_be_ignored() -> None:
    engine = FakeEngine(Scheduler(limits()), eos_after={"a": 1, "b": 1})
    engine.step(arrive=(request("a", prompt=2, new=4), request("b", prompt=2, new=4, ignore_eos=True)))
    engine.run_dry()
    assert engine.answers == {"a": [100, EOS], "b": [100, EOS, 102, 103]}
    assert engine.ended == {"a": FinishType.STOP, "b": FinishType.LENGTH}


def test_aborting_what_is_unknown_or_over_changes_nothing() -> None:
    engine = FakeEngine(Scheduler(limits()))
    engine.step(arrive=(request("a", prompt=2, new=1),))
    engine.run_dry()
    assert engine.scheduler.abort("a") == []
    assert engine.scheduler.abort("never") == []
    assert engine.scheduler.take_freed() == ()


@pytest.mark.parametrize("where", ["waiting", "running"])
def test_a_rid_in_use_is_refused(where: str) -> None:
    scheduler = Scheduler(limits())
    scheduler.add(request("a", prompt=2, new=4))
    if where == "running":
        scheduler.plan()
    with pytest.raises(UsageError, match="rid 'a' is in use"):
        scheduler.add(request("a", prompt=2, new=4))


def test_a_request_that_can_never_fit_is_refused_with_its_numbers() -> None:
    # 16 rows on each of 2 ranks: 32 tokens in pages of 4. 9 tokens round up to 12, one page more is 16.
    assert refuse(request("a", prompt=9, new=15), limits=limits()) is None
    refusal = refuse(request("a", prompt=9, new=16), limits=limits())
    assert refusal is not None
    for number in ("input_len 9", "pages of 4", "max_new_tokens 16", "max_total_num_tokens 32"):
        assert number in refusal


def test_the_context_of_the_model_bounds_a_request_too() -> None:
    known = limits(rows=1000, context=100)
    assert refuse(request("a", prompt=90, new=10), limits=known) is None
    assert "context of 100" in (refuse(request("a", prompt=90, new=11), limits=known) or "")


def test_prompt_logprobs_ask_for_all_rows_of_the_prompt_only() -> None:
    scheduler = Scheduler(limits(chunk=3))
    scheduler.add(
        GenerateRequest(rid="a", tokens=(1, 2, 3, 4), max_new_tokens=2, logprob_start=0, return_logprob=True)
    )
    wanted = []
    for sampled in ({}, {}, {"a": 9}, {"a": 9}):
        scheduler.commit(sampled)
        batch = scheduler.plan()
        wanted += [(chunk.start, chunk.all_logits) for chunk in batch.chunks] if batch else []
    assert wanted == [(0, True), (3, True), (4, False)]


def test_a_missing_token_is_an_error() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(request("a", prompt=2, new=2))
    scheduler.plan()
    with pytest.raises(KeyError):
        scheduler.commit({})
