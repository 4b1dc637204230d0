"""The live source without injection: safe reads are off until a group is up, loud ones raise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError

import pytest

from harness.errors import InjectionError, NoGroupError, TopologyError
from harness.topology import (
    LiveParallel,
    ParallelConfig,
    ParallelState,
    get_parallel,
    inject,
    install_parallel,
    uninstall_parallel,
)
from harness.topology.live import live_read

CONFIG = ParallelConfig(tp_size=8, dcp_size=4)
STATE = ParallelState.from_config(CONFIG, tp_rank=6)
LOUD_DCP = ("dcp_size", "dcp_rank", "dcp_group")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    uninstall_parallel()
    yield
    uninstall_parallel()


def assert_dcp_is_off() -> None:
    live = get_parallel()
    assert (live.dcp_enabled, live.attn_dcp_size, live.attn_dcp_rank) == (False, 1, 0)
    for name in LOUD_DCP:
        with pytest.raises(NoGroupError, match="no DCP group is installed"):
            getattr(live, name)


def test_nothing_installed() -> None:
    assert_dcp_is_off()
    for name in ("tp_size", "tp_rank", "pp_rank", "attn_tp_size", "moe_ep_rank", "state"):
        with pytest.raises(NoGroupError, match="no topology is installed"):
            getattr(get_parallel(), name)


def test_a_process_starts_with_nothing_installed() -> None:
    code = "from harness.topology import get_parallel as g; print(g().dcp_enabled, g().attn_dcp_size)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False 1\n"


def test_each_refusal_has_its_own_words() -> None:
    def said(call: Callable[[], object]) -> str:
        with pytest.raises(TopologyError) as caught:
            call()
        return str(caught.value)

    assert said(lambda: get_parallel().tp_rank) == (
        "no topology is installed in this process: install_parallel() has not been called"
    )
    assert said(lambda: get_parallel().dcp_rank) == (
        "no DCP group is installed here: DCP is off, or its groups are not up yet"
    )
    install_parallel(STATE)
    assert said(lambda: install_parallel(STATE)) == (
        "a topology is already installed in this process: uninstall_parallel() first"
    )
    with inject(CONFIG, rank=5):
        assert said(lambda: install_parallel(STATE)) == (
            "install_parallel() was called inside inject(rank 5 of tp 8, dcp 4), which already answers"
        )


def test_what_a_read_goes_by_cannot_change() -> None:
    install_parallel(STATE, groups={"dcp": "group"})
    snapshot = get_parallel().snapshot()
    with pytest.raises(FrozenInstanceError):
        snapshot.state = None
    with pytest.raises(TypeError):
        snapshot.groups["dcp"] = "other"
    assert "__dict__" not in dir(type(snapshot))


def test_the_class_shows_what_its_reads_are() -> None:
    assert LiveParallel.dcp_size.name == "dcp_size"
    assert LiveParallel.dcp_size.__doc__ == "Loud: raises NoGroupError while no DCP group is up."
    assert LiveParallel.tp_rank.name == "tp_rank"


def test_a_read_is_made_of_a_function_or_of_a_field() -> None:
    field_read = type(LiveParallel.tp_rank)

    class Own(LiveParallel):
        tp_rank = field_read()

        @live_read
        def twice(self) -> int:
            """Doc."""
            return 2 * self.tp_rank

    install_parallel(STATE)
    assert (Own().tp_rank, Own().twice) == (6, 12)
    assert (Own.tp_rank.name, Own.twice.name, Own.twice.__doc__) == ("tp_rank", "twice", "Doc.")


def test_a_state_without_its_group_leaves_dcp_off() -> None:
    install_parallel(STATE)
    assert_dcp_is_off()
    assert (get_parallel().tp_rank, get_parallel().tp_size) == (6, 8)


def test_an_installed_group_answers_until_it_is_uninstalled() -> None:
    kept = get_parallel()
    group = object()
    install_parallel(STATE, groups={"dcp": group})
    assert (kept.dcp_enabled, kept.attn_dcp_size, kept.attn_dcp_rank) == (True, 4, 2)
    assert (kept.dcp_size, kept.dcp_rank, kept.dcp_group) == (4, 2, group)
    assert kept.state is STATE
    uninstall_parallel()
    assert_dcp_is_off()


def test_a_group_of_one_is_a_group_but_not_dcp() -> None:
    install_parallel(ParallelState.trivial(), groups={"dcp": "one"})
    live = get_parallel()
    assert (live.dcp_enabled, live.dcp_size, live.dcp_rank, live.dcp_group) == (False, 1, 0, "one")


def test_every_field_of_the_state_is_read_under_its_own_name() -> None:
    config = ParallelConfig(
        tp_size=16, pp_size=2, dp_size=2, attn_cp_size=2, dcp_size=2, ep_size=4, enable_dp_attention=True
    )
    state = ParallelState.from_config(config, tp_rank=13, pp_rank=1)
    install_parallel(state, groups={"dcp": (12, 13)})
    live = get_parallel()
    for name in state.__slots__:
        if name != "gpu_id":
            assert getattr(live, name) == getattr(state, name), name


def test_installing_twice_is_refused() -> None:
    install_parallel(STATE)
    with pytest.raises(TopologyError, match="already installed"):
        install_parallel(STATE)


def test_later_changes_of_the_callers_mapping_do_not_count() -> None:
    groups: dict[str, object] = {}
    install_parallel(STATE, groups)
    groups["dcp"] = object()
    assert_dcp_is_off()


def test_injection_hides_what_is_installed_and_gives_it_back() -> None:
    install_parallel(STATE, groups={"dcp": "real"})
    with inject(ParallelConfig(tp_size=2, dcp_size=2), rank=1):
        assert (get_parallel().dcp_size, get_parallel().tp_rank) == (2, 1)
        with pytest.raises(InjectionError, match="install_parallel"):
            install_parallel(STATE)
    assert (get_parallel().dcp_size, get_parallel().dcp_group) == (4, "real")
