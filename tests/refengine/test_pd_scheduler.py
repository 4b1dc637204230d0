"""Two schedulers that share requests: with any sizes and in any order of arrival, each request ends once on both sides.

The test is the wire between them: it tells a prefill scheduler what a decode rank would, and the other way round, late
and in an order of its own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.refengine.batch import ForwardMode
from harness.refengine.requests import FinishType, GenerateRequest, Handover, Progress
from harness.refengine.scheduler import Limits, Scheduler, Stage, refuse
from harness.topology import Capacity, KVLayout

EOS = 257
# The first token of every answer comes from the prefill engine, the others from the decode engine.
FIRST, LATER = 50, 60


def limits(*, tokens: int = 64, chunk: int = 5, running: int = 8) -> Limits:
    return Limits(
        capacity=Capacity(rows_per_rank=tokens, dcp_size=1),
        layout=KVLayout(dcp_size=1, page_size=2),
        chunked_prefill_size=chunk,
        max_running_requests=running,
        max_positions=1000,
        eos_id=EOS,
    )


def handed(rid: str, *, prompt: int = 3, new: int = 4) -> GenerateRequest:
    return GenerateRequest(
        rid=rid, tokens=tuple(range(prompt)), max_new_tokens=new, handover=Handover(room=1)
    )


def taken(rid: str, *, prompt: int = 3, new: int = 4) -> GenerateRequest:
    return GenerateRequest(
        rid=rid,
        tokens=tuple(range(prompt)),
        max_new_tokens=new,
        handover=Handover(room=1, peer={"host": "p"}),
    )


@dataclass
class Side:
    """One engine. `computed` counts the prompt tokens of each request, `ended` says how each ended."""

    scheduler: Scheduler
    token: int
    sampled: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, FinishType] = field(default_factory=dict)

    def note(self, progress: list[Progress]) -> None:
        for one in progress:
            assert one.rid not in self.ended, "progress after the end"
            if one.token is not None:
                self.tokens.setdefault(one.rid, []).append(one.token)
            if one.finish is not None:
                self.ended[one.rid] = one.finish

    def commit(self) -> None:
        self.note(self.scheduler.commit(self.sampled))
        self.sampled = {}

    def plan(self) -> list[str]:
        """Compute one step; the requests that were admitted."""
        self.scheduler.take_freed()
        batch = self.scheduler.plan()
        for chunk in batch.chunks if batch else ():
            sequence = self.scheduler.running[chunk.rid]
            assert sequence.stage is Stage.COMPUTING
            if batch is not None and batch.mode is ForwardMode.EXTEND:
                self.computed[chunk.rid] = self.computed.get(chunk.rid, 0) + len(chunk.tokens)
            if chunk.start + len(chunk.tokens) >= sequence.prompt_len:
                self.sampled[chunk.rid] = self.token
        return [sequence.request.rid for sequence in self.scheduler.take_admitted()]

    def stage(self, rid: str) -> Stage | None:
        sequence = self.scheduler.running.get(rid)
        return None if sequence is None else sequence.stage

    @property
    def held(self) -> int:
        return self.scheduler.allocator.num_pages - self.scheduler.allocator.num_free


class Pair:
    """Both engines and the wire between them: what one has said and the other has not heard yet."""

    def __init__(self, prefill: Limits, decode: Limits, rng: random.Random) -> None:
        self.prefill = Side(Scheduler(prefill), token=FIRST)
        self.decode = Side(Scheduler(decode), token=LATER)
        self._rng = rng
        self._registered: set[str] = set()
        self._computed: set[str] = set()
        self._acknowledged: set[str] = set()
        self._told: set[str] = set()

    def step_prefill(self) -> None:
        self.prefill.commit()
        for rid in self._some(self._registered):
            self.prefill.scheduler.bind(rid)
        for rid in self._some(self._acknowledged):
            self.prefill.note(self.prefill.scheduler.release(rid))
        self.prefill.plan()
        for rid, sequence in self.prefill.scheduler.running.items():
            if sequence.stage is Stage.HANDING_OVER:
                self._say_computed(rid)

    def step_decode(self) -> None:
        self.decode.commit()
        for rid in self._some(self._computed):
            self._acknowledged.add(rid)
            self.decode.note(self.decode.scheduler.begin(rid, FIRST))
        self._registered |= set(self.decode.plan())

    def abort(self, rid: str) -> None:
        """Between two steps of each side, as if both were told."""
        for side in (self.prefill, self.decode):
            side.commit()
            side.note(side.scheduler.abort(rid))

    def _say_computed(self, rid: str) -> None:
        if rid not in self._told:
            assert self.decode.stage(rid) is Stage.RECEIVING, "computed without a place to go"
            self._told.add(rid)
            self._computed.add(rid)

    def _some(self, said: set[str]) -> list[str]:
        heard = [rid for rid in sorted(said) if self._rng.random() < 0.7]
        self._rng.shuffle(heard)
        said.difference_update(heard)
        return heard


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    prefill_tokens=st.integers(8, 40),
    decode_tokens=st.integers(8, 60),
    chunk=st.integers(1, 9),
    running=st.integers(1, 4),
)
def test_no_order_of_arrival_blocks_both_sides(
    seed: int, prefill_tokens: int, decode_tokens: int, chunk: int, running: int
) -> None:
    rng = random.Random(seed)
    pair = Pair(
        limits(tokens=prefill_tokens // 2 * 2, chunk=chunk, running=running),
        limits(tokens=decode_tokens // 2 * 2, chunk=chunk, running=running),
        rng,
    )
    sizes = {f"r{i}": (rng.randrange(1, 12), rng.randrange(1, 9)) for i in range(rng.randrange(1, 15))}
    fitting = [
        rid
        for rid, (prompt, new) in sizes.items()
        if not refuse(handed(rid, prompt=prompt, new=new), limits=pair.prefill.scheduler.limits)
        and not refuse(taken(rid, prompt=prompt, new=new), limits=pair.decode.scheduler.limits)
    ]
    for side, make in ((pair.prefill, handed), (pair.decode, taken)):
        for rid in rng.sample(fitting, len(fitting)):
            side.scheduler.add(make(rid, prompt=sizes[rid][0], new=sizes[rid][1]))
    victims = [rid for rid in fitting if rng.random() < 0.2]
    left = list(victims)
    for _ in range(5_000):
        if pair.prefill.scheduler.idle and pair.decode.scheduler.idle:
            break
        rng.choice((pair.step_prefill, pair.step_decode))()
        if left and rng.random() < 0.3:
            pair.abort(left.pop())
    assert set(pair.prefill.ended) == set(pair.decode.ended) == set(fitting)
    assert pair.prefill.held == pair.decode.held == 0
    for rid in set(fitting) - set(victims):
        prompt, new = sizes[rid]
        assert pair.prefill.tokens[rid] == [FIRST]
        assert pair.prefill.computed[rid] == prompt
        assert pair.decode.tokens[rid] == [FIRST] + [LATER] * (new - 1)
        assert rid not in pair.decode.computed
        assert pair.prefill.ended[rid] is pair.decode.ended[rid] is FinishType.LENGTH


def test_a_prompt_is_not_computed_before_its_place_is_reserved_elsewhere() -> None:
    side = Side(Scheduler(limits()), token=FIRST)
    side.scheduler.add(handed("a"))
    assert side.plan() == []
    assert (side.held, side.scheduler.num_waiting, side.scheduler.idle) == (0, 1, False)
    side.scheduler.bind("a")
    assert side.plan() == ["a"]


def test_what_is_bound_first_overtakes_what_came_first() -> None:
    side = Side(Scheduler(limits(tokens=10)), token=FIRST)
    side.scheduler.add(handed("a", prompt=4))
    side.scheduler.add(handed("b", prompt=4))
    side.scheduler.bind("b")
    assert side.plan() == ["b"]


def test_a_prompt_holds_its_pages_until_it_is_released_and_no_room_for_its_answer() -> None:
    side = Side(Scheduler(limits(tokens=10)), token=FIRST)
    side.scheduler.add(handed("a", prompt=4, new=500))
    side.scheduler.bind("a")
    side.plan()
    side.commit()
    assert (side.held, side.stage("a"), side.ended) == (2, Stage.HANDING_OVER, {})
    assert side.scheduler.plan() is None
    side.note(side.scheduler.release("a"))
    assert (side.held, side.ended) == (0, {"a": FinishType.LENGTH})


def test_what_is_received_is_not_computed_and_counts_nothing_until_it_begins() -> None:
    side = Side(Scheduler(limits()), token=LATER)
    side.scheduler.add(taken("a", prompt=3, new=2))
    assert side.plan() == ["a"]
    (sequence,) = side.scheduler.running.values()
    assert (sequence.stage, sequence.kv_len, side.scheduler.planned) == (Stage.RECEIVING, 0, None)
    side.note(side.scheduler.begin("a", FIRST))
    assert (sequence.stage, sequence.kv_len, sequence.tokens) == (Stage.COMPUTING, 3, [0, 1, 2, FIRST])
    side.plan()
    side.commit()
    assert side.tokens == {"a": [FIRST, LATER]}


@pytest.mark.parametrize(
    ("first", "new", "finish"), [(EOS, 5, FinishType.STOP), (FIRST, 1, FinishType.LENGTH)]
)
def test_an_answer_can_end_with_the_token_it_begins_with(first: int, new: int, finish: FinishType) -> None:
    side = Side(Scheduler(limits()), token=LATER)
    side.scheduler.add(taken("a", new=new))
    side.plan()
    side.note(side.scheduler.begin("a", first))
    assert (side.held, side.ended) == (0, {"a": finish})


def test_the_end_mark_ends_nothing_on_the_side_that_hands_over() -> None:
    side = Side(Scheduler(limits()), token=EOS)
    side.scheduler.add(handed("a"))
    side.scheduler.bind("a")
    side.plan()
    side.commit()
    assert side.stage("a") is Stage.HANDING_OVER


@pytest.mark.parametrize("late", ["bind", "begin", "release"])
def test_what_is_said_of_a_request_that_is_gone_changes_nothing(late: str) -> None:
    side = Side(Scheduler(limits()), token=FIRST)
    known = {"bind": handed, "begin": taken, "release": handed}[late]
    side.scheduler.add(known("a"))
    side.note(side.scheduler.abort("a"))
    say = {
        "bind": lambda: side.scheduler.bind("a"),
        "begin": lambda: side.scheduler.begin("a", FIRST),
        "release": lambda: side.scheduler.release("a"),
    }[late]
    assert not say()
    assert side.scheduler.idle


def test_a_release_does_not_end_what_is_still_computed() -> None:
    side = Side(Scheduler(limits(chunk=1)), token=FIRST)
    side.scheduler.add(handed("a"))
    side.scheduler.bind("a")
    side.plan()
    assert side.scheduler.release("a") == []
    assert side.stage("a") is Stage.COMPUTING


def test_a_rid_that_waits_for_its_place_is_in_use() -> None:
    scheduler = Scheduler(limits())
    scheduler.add(handed("a"))
    with pytest.raises(UsageError, match="rid 'a' is in use"):
        scheduler.add(handed("a"))


def test_a_request_without_a_handover_is_served_whole_beside_others() -> None:
    side = Side(Scheduler(limits()), token=FIRST)
    side.scheduler.add(handed("a"))
    side.scheduler.add(GenerateRequest(rid="probe", tokens=(1,), max_new_tokens=2, ignore_eos=True))
    for _ in range(3):
        side.plan()
        side.commit()
    assert side.ended == {"probe": FinishType.LENGTH}
