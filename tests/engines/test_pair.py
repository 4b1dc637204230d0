"""A pair that really runs: what it tells of its death, how a side comes back, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.containment.proc import descendants_of
from harness.engines import GenerateRequest, LaunchSpec, PairSpec, PDPair
from harness.errors import DeadlineError, EngineDiedError, EngineLaunchError
from harness.topology import ParallelConfig, Side

ARGS = {"page-size": 4, "kv-bytes": 65536}
REQUEST = GenerateRequest(input_ids=tuple(range(1, 20)), max_new_tokens=4)


def side(tp: int, dcp: int, **changes: object) -> LaunchSpec:
    values: dict[str, object] = {
        "kind": "reference",
        "model": "builtin:random-gqa",
        "parallel": ParallelConfig(tp_size=tp, dcp_size=dcp),
        "args": ARGS,
        "launch_timeout_s": 120.0,
    }
    return LaunchSpec(**{**values, **changes})  # type: ignore[arg-type]


SPEC = PairSpec(prefill=side(1, 1), decode=side(2, 2), router_args={"request-timeout": 60})


def logs(folder: Path) -> list[str]:
    return sorted(log.name for log in folder.glob("*.log"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PDPair]:
    """One pair for all tests of this file, each of which leaves it whole."""
    running = PDPair.launch(SPEC, folder=tmp_path_factory.mktemp("logs"), stem="1")
    try:
        with running.client.deadline("test", 300):
            yield running
    finally:
        running.stop()


def test_three_processes_with_a_log_each_answer_as_one(pair: PDPair) -> None:
    assert len(pair.client.generate(REQUEST).tokens) == 4
    told = pair.client.server_info()
    assert told.pair is not None
    assert told.pair.prefill == (pair.engine(Side.PREFILL).client.url,)
    assert told.pair.decode == (pair.engine(Side.DECODE).client.url,)
    folder = pair.engine(Side.PREFILL).log.parent
    assert {"1-decode-tp2-dcp2.log", "1-prefill-tp1-dcp1.log", "1-router.log"} <= set(logs(folder))


@pytest.mark.parametrize("rank", [None, 1])
def test_who_died_and_how_is_told_and_the_side_comes_back_where_it_was(
    pair: PDPair, rank: int | None
) -> None:
    before, address = pair.client.generate(REQUEST), pair.engine(Side.DECODE).client.url
    how = pair.kill(Side.DECODE, rank=rank)
    assert how == ("its launcher was killed by SIGKILL" if rank is None else "rank 1 was killed by SIGKILL")
    with pytest.raises(EngineDiedError, match=f"^decode engine: {how}$"):
        pair.check_alive()
    with pytest.raises(EngineDiedError, match=f"^decode engine: {how}$"):
        pair.client.generate(REQUEST)
    pair.restart(Side.DECODE)
    assert pair.started_anew
    assert pair.engine(Side.DECODE).client.url == address
    pair.check_alive()
    assert pair.client.generate(REQUEST).tokens == before.tokens
    assert any("-start" in name for name in logs(pair.engine(Side.DECODE).log.parent))


def test_stacks_of_all_three_are_written(pair: PDPair) -> None:
    pair.dump_stacks()
    folder = pair.engine(Side.PREFILL).log.parent
    for log in (pair.engine(Side.PREFILL).log, pair.engine(Side.DECODE).log, folder / "1-router.log"):
        assert "most recent call first" in log.read_text(), log


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        (
            PairSpec(prefill=side(1, 1), decode=side(2, 2, model="builtin:nothing")),
            EngineLaunchError,
            "decode engine did not start: .*builtin:nothing",
        ),
        (
            PairSpec(prefill=side(1, 1), decode=side(2, 2, args={**ARGS, "page-size": 8})),
            EngineLaunchError,
            "router did not start: .*page",
        ),
        (
            PairSpec(prefill=side(1, 1, launch_timeout_s=0.2), decode=side(1, 1, launch_timeout_s=0.2)),
            DeadlineError,
            "deadline 'launch' of 0.2 s passed",
        ),
    ],
)
def test_a_launch_that_fails_says_which_and_leaves_nothing(
    spec: PairSpec, error: type[Exception], words: str, tmp_path: Path
) -> None:
    before = set(descendants_of(os.getpid()))
    with pytest.raises(error, match=words):
        PDPair.launch(spec, folder=tmp_path, stem="7")
    assert set(descendants_of(os.getpid())) <= before


def test_a_rank_that_is_told_to_end_by_others_is_named_too(pair: PDPair) -> None:
    """Not by `kill`: whoever ends it, the pair tells who and how."""
    (first, *_) = pair.engine(Side.PREFILL).client.server_info().ranks or ()
    os.kill(first.pid, signal.SIGKILL)
    assert pair.why_dead() == "prefill engine: rank 0 was killed by SIGKILL"
    pair.restart(Side.PREFILL)
    pair.client.generate(REQUEST)
