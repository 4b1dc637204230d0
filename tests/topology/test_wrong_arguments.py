"""What is no argument is refused by name, with what is allowed; a block is used once and stays in its process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import pytest

from harness.errors import InjectionError, TopologyError
from harness.topology import (
    ParallelConfig,
    ParallelState,
    check_groups,
    get_parallel,
    inject,
    install_parallel,
    uninstall_parallel,
)

TP8 = ParallelConfig(tp_size=8, dcp_size=4)
STATE = ParallelState.from_config(TP8, tp_rank=5)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    uninstall_parallel()
    yield
    uninstall_parallel()


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (None, "groups is None, but must be a list of lists of ranks"),
        (5, "groups is 5, but must be a list of lists of ranks"),
        ("0123", "groups is '0123', but must be a list of lists of ranks"),
        ([["0", "1"]], "groups holds ['0', '1'], but a group must be a list of ranks, integers"),
        ([[0, 1], 2], "groups holds 2, but a group must be a list of ranks, integers"),
        ([[0, True]], "groups holds [0, True], but a group must be a list of ranks, integers"),
        ([[0, None]], "groups holds [0, None], but a group must be a list of ranks, integers"),
        (["01"], "groups holds '01', but a group must be a list of ranks, integers"),
    ],
)
def test_groups_that_are_none(groups: object, said: str) -> None:
    with pytest.raises(TopologyError) as refusal:
        check_groups(ParallelConfig(tp_size=2), "tp", groups)  # type: ignore[arg-type]
    assert str(refusal.value) == said


def test_groups_may_be_tuples_and_ranges() -> None:
    check_groups(TP8, "attn_dcp", ((0, 1, 2, 3), range(4, 8)))


@pytest.mark.parametrize("state", [5, None, TP8, {}])
def test_what_is_installed_is_a_state(state: object) -> None:
    with pytest.raises(TopologyError) as refusal:
        install_parallel(state, {})  # type: ignore[arg-type]
    assert str(refusal.value).startswith(f"state is {state!r}, but must be a ParallelState, such as")
    install_parallel(STATE)  # nothing was


@pytest.mark.parametrize("groups", [5, [[0, 1]], "dcp"])
def test_groups_are_installed_by_kind(groups: object) -> None:
    with pytest.raises(TopologyError) as refusal:
        install_parallel(STATE, groups)  # type: ignore[arg-type]
    assert str(refusal.value) == (
        f'groups is {groups!r}, but must be a mapping of kinds to groups, such as {{"dcp": group}}'
    )


def test_a_block_is_entered_once() -> None:
    block = inject(TP8, rank=5)
    with block as worker:
        for _ in range(2):
            with pytest.raises(InjectionError) as refusal:
                block.__enter__()
            assert (
                str(refusal.value)
                == "an inject() block can be entered once: call inject() anew for each block"
            )
        assert worker.dcp_rank == get_parallel().dcp_rank == 1  # the open one still stands
    with pytest.raises(InjectionError, match="can be entered once"), block:
        pass
    assert get_parallel().attn_dcp_size == 1


def test_a_block_is_left_only_once_entered() -> None:
    with pytest.raises(InjectionError, match=r"^an inject\(\) block was left that has not been entered$"):
        inject(TP8).__exit__(None, None, None)


def test_a_decorated_function_has_a_block_of_its_own_at_each_call() -> None:
    @inject(TP8, rank=5)
    def again(depth: int) -> list[int]:
        return [get_parallel().dcp_rank, *(again(depth - 1) if depth else [])]

    assert again(2) + again(0) == [1] * 4


PICKLING = (
    "the live topology of inject(rank 5 of tp 8, dcp 4) cannot be pickled: it answers in its block and its process"
    " only; send config and rank, and inject() them there"
)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_injected_topology_is_not_sent_anywhere(protocol: int) -> None:
    with inject(TP8, rank=5) as worker:
        for view in (worker, get_parallel()):
            for sent in (view, {"parallel": [view]}):
                with pytest.raises(InjectionError) as refusal:
                    pickle.dumps(sent, protocol)
                assert str(refusal.value) == PICKLING
    assert pickle.loads(pickle.dumps(get_parallel(), protocol)).attn_dcp_size == 1


def test_a_copy_of_an_injected_topology_answers_as_it_does() -> None:
    with inject(TP8, rank=5) as worker:
        for view in (worker, get_parallel()):
            kept = [copy.copy(view), copy.deepcopy({"deep": view})["deep"]]
            assert [other.dcp_rank for other in kept] == [1, 1]
    for other in kept:
        with pytest.raises(InjectionError):
            _ = other.dcp_rank
