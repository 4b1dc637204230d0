"""Mock workers: made of a topology, never without a ps, and loud about what they were not given."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from harness.errors import InjectionError, TopologyError, UnansweredReadError, UnknownNameError
from harness.topology import MockServerArgs, MockWorker, ParallelConfig, ParallelState, inject, mock_worker
from harness.topology.resolve import WorkerSources, resolve

TP8 = ParallelConfig(tp_size=8, dcp_size=4)
RANK6 = ParallelState.from_config(TP8, tp_rank=6)
SIZES = ("tp_size", "pp_size", "dp_size", "attn_cp_size", "dcp_size", "ep_size", "moe_dp_size")


def test_without_a_topology_it_is_an_engine_of_one() -> None:
    worker = mock_worker()
    assert worker.ps == ParallelState.trivial()
    assert [getattr(worker.server_args, name) for name in SIZES] == [1] * 7
    assert worker.server_args.enable_dp_attention is False


def test_of_a_topology_it_is_the_rank_asked_for() -> None:
    staged = replace(TP8, pp_size=2)
    worker = mock_worker(staged, 14)
    assert worker.ps == ParallelState.from_config(staged, tp_rank=6, pp_rank=1)
    assert [getattr(worker.server_args, name) for name in SIZES] == [8, 2, 1, 1, 4, 1, 1]
    assert mock_worker(TP8).ps.tp_rank == 0
    assert mock_worker(TP8, rank=3).ps.attn_dcp_rank == 3


def test_inside_a_block_it_is_the_injected_worker_whatever_is_live() -> None:
    two, eight = replace(TP8, dcp_size=2), replace(TP8, dcp_size=8)
    with inject(TP8, rank=6, seed=eight, live=two) as injected:
        worker = mock_worker()
        assert (worker.server_args.dcp_size, worker.ps, injected.dcp_size) == (8, RANK6, 2)
        assert mock_worker(two, 1).ps.attn_dcp_size == 2
        with pytest.raises(TopologyError) as caught:
            mock_worker(rank=3)
        assert str(caught.value) == (
            "rank 3 needs a config; without one the worker is that of inject(rank 6 of tp 8, dcp 2)"
        )
    assert mock_worker().ps == ParallelState.trivial()


def test_sources_can_be_given_apart() -> None:
    two = ParallelState.from_config(replace(TP8, dcp_size=2), tp_rank=5)
    worker = mock_worker(TP8, 6, ps=two, server_args={"dcp_size": 8, "page_size": 16})
    assert worker.ps is two
    assert (worker.server_args.dcp_size, worker.server_args.page_size, worker.server_args.tp_size) == (
        8,
        16,
        8,
    )
    assert mock_worker(TP8, 6, ps=replace(TP8, dcp_size=8)).ps.attn_dcp_rank == 6


def test_resolved_sources_are_values() -> None:
    sources = resolve(TP8, rank=6)
    assert (sources.rank, sources.seed, sources.ps, sources.live) == (6, TP8, RANK6, RANK6)
    with pytest.raises(FrozenInstanceError):
        sources.rank = 1
    assert "__dict__" not in dir(WorkerSources)
    with pytest.raises(TypeError):
        WorkerSources(6, TP8, RANK6, RANK6)


def test_attributes_are_as_given_and_can_change() -> None:
    worker = mock_worker(page_size=16, forward=lambda x: x + 1)
    assert (worker.page_size, worker.forward(2)) == (16, 3)
    worker.page_size = 32
    worker.is_draft = True
    del worker.forward
    assert (worker.page_size, worker.is_draft, hasattr(worker, "forward")) == (32, True, False)
    worker.ps = RANK6
    assert worker.ps is RANK6
    worker.server_args.dcp_size = 2
    assert worker.server_args.dcp_size == 2


NO_PS = "ps is None, but must be a ParallelState or a ParallelConfig"


def test_there_is_none_without_a_ps() -> None:
    with pytest.raises(TopologyError) as caught:
        mock_worker(ps=None)
    assert str(caught.value) == NO_PS
    worker = mock_worker(TP8)
    with pytest.raises(TopologyError) as caught:
        worker.ps = None
    assert str(caught.value) == "ps is None, but a mock worker always carries a ParallelState"
    with pytest.raises(TopologyError) as caught:
        del worker.ps
    assert str(caught.value) == "ps cannot be deleted: a mock worker always carries a ParallelState"
    with pytest.raises(TypeError):
        MockWorker(server_args=MockServerArgs(TP8, {}))
    assert worker.ps.attn_dcp_size == 4


def test_a_ps_that_contradicts_itself_and_a_rank_that_is_not_there_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"^ps contradicts itself: attn_dcp_rank is 1, but tp_rank 6 % "):
        mock_worker(ps=replace(RANK6, attn_dcp_rank=1))
    with pytest.raises(TopologyError, match=r"^rank is 8, but must be an integer in 0\.\.7 "):
        mock_worker(TP8, 8)
    with pytest.raises(TopologyError, match=r"^rank is 1, but must be an integer in 0\.\.0 "):
        mock_worker(rank=1)
    with pytest.raises(TopologyError, match=r"^config is 8, but must be a ParallelConfig$"):
        mock_worker(8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("page_sise", "page_size"),
        ("attn_dpc_rank", "ps.attn_dcp_rank"),
        ("radix_cash", "server_args.radix_cache"),
        ("server_arg", "server_args"),
        ("zzz", None),
    ],
)
def test_what_it_lacks_raises_and_says_where_the_nearest_is(name: str, nearest: str | None) -> None:
    worker = mock_worker(TP8, page_size=16, server_args={"radix_cache": True})
    with pytest.raises(UnknownNameError) as caught:
        getattr(worker, name)
    meant = "" if nearest is None else f"; did you mean {nearest!r}?"
    assert str(caught.value) == f"this mock worker has no {name!r}{meant}"
    assert caught.value.nearest == nearest
    assert getattr(worker, name, "default") == "default"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("attn_dcp_size", "ps.attn_dcp_size"),
        ("tp_size", "ps.tp_size"),
        ("dcp_size", "server_args.dcp_size"),
        ("ep_size", "server_args.ep_size"),
        ("dcp_rank", "ps.attn_dcp_rank"),
        ("dcp_enabled", "get_parallel().dcp_enabled"),
    ],
)
def test_no_default_answers_for_a_number_of_the_topology(name: str, nearest: str) -> None:
    worker = mock_worker(TP8, page_size=16)
    for read in (
        lambda: getattr(worker, name),
        lambda: getattr(worker, name, 1),
        lambda: hasattr(worker, name),
    ):
        with pytest.raises(UnansweredReadError) as caught:
            read()
        assert str(caught.value) == f"this mock worker has no {name!r}; did you mean {nearest!r}?"
        assert caught.value.nearest == nearest
    assert getattr(mock_worker(TP8, **{name: 3}), name, 1) == 3


def test_no_default_answers_for_a_number_that_server_args_lack() -> None:
    arguments = mock_worker(TP8).server_args
    with pytest.raises(UnansweredReadError, match=r"^server_args of this mock worker has no 'attn_dcp_size'"):
        getattr(arguments, "attn_dcp_size", 1)
    assert getattr(arguments, "dcp_size", 1) == 4
    assert getattr(arguments, "page_size", 1) == 1


SLIPS = {
    "rnak": "very like 'rank'",
    "ranks": "very like 'rank'",
    "sp": "very like 'ps'",
    "server_arg": "very like 'server_args'",
    "dpc_size": "very like 'dcp_size'",
    "tp": "a size or rank of the topology: give it a config",
    "dcp": "a size or rank of the topology: give it a config",
}


@pytest.mark.parametrize("name", SLIPS)
def test_an_attribute_that_may_be_meant_for_an_argument_is_refused(name: str) -> None:
    with pytest.raises(TopologyError) as caught:
        mock_worker(TP8, **{name: 5})
    told = str(caught.value)
    assert told.startswith(f"mock_worker() was given the attribute {name!r}, which is {SLIPS[name]}")
    assert told.endswith(f"set it on the worker: worker.{name} = ...")
    worker = mock_worker(TP8)
    setattr(worker, name, 5)
    assert getattr(worker, name) == 5


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (
            "tp",
            "a size or rank of the topology: give it a config, mock_worker(ParallelConfig(tp_size=8), rank=5).",
        ),
        ("ranks", "very like 'rank'; did you mean that?"),
    ],
)
def test_such_an_attribute_is_refused_with_the_way_out(name: str, meant: str) -> None:
    with pytest.raises(TopologyError) as caught:
        mock_worker(TP8, **{name: 5})
    assert str(caught.value) == (
        f"mock_worker() was given the attribute {name!r}, which is {meant}"
        f" If an attribute is what you want, set it on the worker: worker.{name} = ..."
    )


@pytest.mark.parametrize("name", ["tp_size", "dcp_rank", "attn_dcp_size"])
def test_a_size_without_a_topology_is_no_attribute(name: str) -> None:
    with pytest.raises(TopologyError, match="a size or rank of the topology: give it a config"):
        mock_worker(**{name: 8})
    assert getattr(mock_worker(TP8, **{name: 8}), name) == 8
    with inject(TP8, rank=6):
        assert getattr(mock_worker(**{name: 8}), name) == 8


@pytest.mark.parametrize(
    "name", ["model_config", "tp_worker", "page_size", "moe_tp_size", "is_draft_worker", "gpu_id"]
)
def test_names_of_their_own_are_attributes(name: str) -> None:
    assert getattr(mock_worker(TP8, **{name: 5}), name) == 5
    assert getattr(mock_worker(**{name: 5}), name) == 5


@pytest.mark.parametrize("given", [None, 5, "dcp_size"])
def test_server_args_are_a_mapping(given: object) -> None:
    with pytest.raises(TopologyError) as caught:
        mock_worker(TP8, server_args=given)
    assert str(caught.value) == f"server_args is {given!r}, but must be a mapping of launch arguments"


def test_an_own_attribute_goes_before_a_source_of_the_same_name() -> None:
    assert mock_worker(TP8, dcp_size=16).dcp_size == 16
    with pytest.raises(UnknownNameError, match=r"no 'dpc_size'; did you mean 'dcp_size'\?$"):
        _ = mock_worker(TP8, dcp_size=16).dpc_size


def test_server_args_are_as_loud() -> None:
    with pytest.raises(UnknownNameError) as caught:
        _ = mock_worker(TP8).server_args.dpc_size
    assert str(caught.value) == "server_args of this mock worker has no 'dpc_size'; did you mean 'dcp_size'?"
    assert caught.value.nearest == "dcp_size"


def test_it_can_be_copied_and_pickled() -> None:
    worker = mock_worker(TP8, 6, page_size=16)
    for other in (copy.copy(worker), copy.deepcopy(worker), pickle.loads(pickle.dumps(worker))):
        assert (other.ps, other.page_size, other.server_args.dcp_size) == (RANK6, 16, 4)
        assert type(other) is MockWorker


def test_a_thread_without_the_context_gets_no_trivial_one_in_silence() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with inject(TP8, rank=6), ThreadPoolExecutor(1) as pool:
        with pytest.raises(InjectionError):
            pool.submit(mock_worker).result()
