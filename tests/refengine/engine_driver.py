"""Drives `ModelRunner` on each rank of a ThreadWorld as a scheduler would; compares with the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from dense_oracle import DenseOracle
from torch import Tensor

from harness.refengine.batch import Batch, ForwardMode, SequenceChunk
from harness.refengine.comm import Comms, ThreadWorld
from harness.refengine.config import EngineConfig
from harness.refengine.runner import ModelRunner
from harness.refengine.served_model import resolve_model
from harness.refengine.weights import TORCH_DTYPES
from harness.topology import ParallelState


@dataclass
class Request:
    """A request while it runs: its tokens so far, its pages, and the logits row of each computed position."""

    index: int
    tokens: list[int]
    pages: tuple[int, ...]
    rows: list[Tensor] = field(default_factory=list)

    def chunk(self, start: int, stop: int) -> SequenceChunk:
        return SequenceChunk(
            rid=f"r{self.index}",
            index=self.index,
            tokens=tuple(self.tokens[start:stop]),
            start=start,
            pages=self.pages,
            all_logits=True,
        )


def prompts(lengths: Iterable[int], *, seed: int = 7) -> list[list[int]]:
    """Random byte prompts of these lengths."""
    rng = random.Random(seed)
    return [[rng.randrange(256) for _ in range(length)] for length in lengths]


def plan_pages(config: EngineConfig, lengths: Sequence[int], *, seed: int = 3) -> list[tuple[int, ...]]:
    """Shuffled page tables, so that neighbouring pages of a sequence are not neighbours in the pool."""
    layout = config.layout()
    counts = [layout.num_pages(length) for length in lengths]
    free = list(range(1, sum(counts) + 1))
    random.Random(seed).shuffle(free)
    return [tuple(free.pop() for _ in range(count)) for count in counts]


def serve(
    runner: ModelRunner, config: EngineConfig, given: Sequence[Sequence[int]], *, new_tokens: int
) -> list[Request]:
    """One rank's life: prefill each prompt in chunks of chunked_prefill_size, then decode all together."""
    pages = plan_pages(config, [len(prompt) + new_tokens for prompt in given])
    running = [
        Request(index=index, tokens=list(prompt), pages=pages[index]) for index, prompt in enumerate(given)
    ]
    step = config.chunked_prefill_size
    longest = max(len(prompt) for prompt in given)
    for start in range(0, longest, step):
        live = [s for s in running if len(s.tokens) > start]
        _forward(runner, ForwardMode.EXTEND, live, [(start, min(start + step, len(s.tokens))) for s in live])
    for _ in range(new_tokens):
        for sequence in running:
            sequence.tokens.append(int(sequence.rows[-1].argmax()))
        spans = [(len(s.tokens) - 1, len(s.tokens)) for s in running]
        _forward(runner, ForwardMode.DECODE, running, spans)
    return running


def _forward(
    runner: ModelRunner, mode: ForwardMode, live: list[Request], spans: list[tuple[int, int]]
) -> None:
    chunks = tuple(s.chunk(start, stop) for s, (start, stop) in zip(live, spans, strict=True))
    logits = runner.forward(Batch(mode=mode, chunks=chunks))
    for sequence, rows in zip(live, logits.split([len(chunk.tokens) for chunk in chunks]), strict=True):
        sequence.rows.extend(rows)


def make_runner(config: EngineConfig, rank: int, comms: Comms) -> ModelRunner:
    parallel = ParallelState.from_config(config.parallel(), tp_rank=rank)
    return ModelRunner(config, comms=comms, parallel=parallel)


def worst_gap(config: EngineConfig, lengths: Sequence[int], *, new_tokens: int = 8, every: int = 1) -> float:
    """Largest |difference| of any log-probability of any position of any prompt to the oracle's.

    All ranks must agree bit for bit. The oracle is slow: it can be asked about each `every`-th request only.
    """
    given = prompts(lengths)

    def rank_main(rank: int, comms: Comms) -> list[Request]:
        return serve(make_runner(config, rank, comms), config, given, new_tokens=new_tokens)

    answers = ThreadWorld(config).run(rank_main)
    for other in answers[1:]:
        for mine, first in zip(other, answers[0], strict=True):
            assert torch.equal(torch.stack(mine.rows), torch.stack(first.rows)), "ranks disagree"
    return max(gap(request, config) for request in answers[0][::every])


def gap(request: Request, config: EngineConfig) -> float:
    """Largest |difference| of this request's log-probabilities to the oracle's, NaN counted as infinite."""
    found = torch.stack(request.rows).double().log_softmax(dim=1)
    expected = oracle_logprobs(config.model, config.seed, config.dtype, tuple(request.tokens))
    return float((found - expected).abs().nan_to_num(nan=torch.inf).max())


# Healthy engines answer a prompt with the same tokens at every topology, so few texts are ever computed.
@lru_cache(maxsize=512)
def oracle_logprobs(model: str, seed: int, dtype: str, tokens: tuple[int, ...]) -> Tensor:
    oracle = DenseOracle(resolve_model(model).config, seed=seed, dtype=TORCH_DTYPES[dtype])
    return oracle.logprobs(list(tokens))
