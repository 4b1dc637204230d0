"""Recorded reads: every read with its phase and call site, and early ones whose answer changed."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import InjectionError, NoGroupError
from harness.topology import (
    EarlyRead,
    ParallelConfig,
    ParallelState,
    Phase,
    Read,
    early_reads,
    get_parallel,
    inject,
    install_parallel,
    reads,
    record_reads,
    uninstall_parallel,
)

CONFIG = ParallelConfig(tp_size=8, dcp_size=4)
STATE = ParallelState.from_config(CONFIG, tp_rank=6)
NAMES = (
    "attn_dcp_size",
    "attn_dcp_rank",
    "dcp_enabled",
    "dcp_size",
    "dcp_rank",
    "dcp_group",
    "state",
    "tp_rank",
    "moe_dp_size",
)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    uninstall_parallel()
    yield
    uninstall_parallel()
    assert not reads.recordings


def line() -> int:
    """The line it is called from."""
    return sys._getframe(1).f_lineno


def look(name: str) -> tuple[object, str]:
    """What a read answers, or what it raises."""
    try:
        return getattr(get_parallel(), name), ""
    except (NoGroupError, InjectionError) as error:
        return None, type(error).__name__


def test_a_read_has_name_value_phase_and_call_site() -> None:
    install_parallel(STATE, groups={"dcp": "group"})
    with record_reads() as seen:
        size, at = get_parallel().attn_dcp_size, line()
    assert size == 4
    assert seen == [
        Read(
            name="attn_dcp_size",
            value=4,
            phase=Phase.LIVE,
            file=__file__,
            line=at,
            function="test_a_read_has_name_value_phase_and_call_site",
        )
    ]
    assert [*Phase] == ["before_init", "live", "torn_down"]


class Pool:
    """A constructor of an engine, for the names of functions."""

    def __init__(self) -> None:
        self.size = get_parallel().attn_dcp_size

    def later(self) -> Callable[[], int]:
        return lambda: get_parallel().attn_dcp_rank


def test_functions_are_named_with_their_classes() -> None:
    with record_reads() as seen:
        Pool().later()()
    assert [read.function for read in seen] == ["Pool.__init__", "Pool.later.<locals>.<lambda>"]


def test_each_read_counts_once_whatever_it_asks_itself() -> None:
    install_parallel(STATE, groups={"dcp": "group"})
    with record_reads() as seen:
        for name in NAMES:
            look(name)
        get_parallel()
        get_parallel().snapshot()
    assert [read.name for read in seen] == list(NAMES)
    assert [read.value for read in seen] == [4, 2, True, 4, 2, "group", STATE, 6, 1]
    assert {read.error for read in seen} == {""}


def test_reads_that_raise_are_recorded_and_raise() -> None:
    with record_reads() as seen:
        for name in ("dcp_size", "dcp_rank", "dcp_group", "tp_size", "state"):
            with pytest.raises(NoGroupError):
                getattr(get_parallel(), name)
    assert [(read.value, read.error, read.phase) for read in seen] == [
        (None, "NoGroupError", Phase.BEFORE_INIT)
    ] * 5


def test_phases_follow_the_process() -> None:
    with record_reads() as seen:
        look("tp_rank")
        install_parallel(STATE)
        look("tp_size")
        uninstall_parallel()
        look("tp_size")
        install_parallel(STATE)
        look("tp_size")
    assert [(read.name, read.phase, read.value) for read in seen] == [
        ("tp_rank", Phase.BEFORE_INIT, None),
        ("tp_rank", Phase.LIVE, 6),  # read once more by the install
        ("tp_size", Phase.LIVE, 8),
        ("tp_size", Phase.TORN_DOWN, None),
        ("tp_rank", Phase.LIVE, 6),  # and by the next: what was late is not asked again
        ("tp_size", Phase.LIVE, 8),
    ]


def test_a_recording_knows_only_what_happened_during_it() -> None:
    install_parallel(STATE)
    uninstall_parallel()
    with record_reads() as seen:
        uninstall_parallel()  # takes nothing down
        look("attn_dcp_size")
    assert [read.phase for read in seen] == [Phase.BEFORE_INIT]


def test_reads_inside_a_block_are_live_and_refused_ones_are_not() -> None:
    with record_reads() as seen:
        look("attn_dcp_rank")
        with inject(CONFIG, rank=6) as worker:
            look("attn_dcp_rank")
            _ = worker.attn_dcp_rank
            with ThreadPoolExecutor(1) as pool:
                with pytest.raises(InjectionError):
                    pool.submit(lambda: worker.tp_rank).result()
        with pytest.raises(InjectionError):
            _ = worker.dcp_size
    assert [(read.name, read.phase, read.value, read.error) for read in seen] == [
        ("attn_dcp_rank", Phase.BEFORE_INIT, 0, ""),
        ("attn_dcp_rank", Phase.LIVE, 2, ""),
        ("attn_dcp_rank", Phase.LIVE, 2, ""),
        ("tp_rank", Phase.TORN_DOWN, None, "InjectionError"),
        ("dcp_size", Phase.TORN_DOWN, None, "InjectionError"),
    ]


def test_nothing_is_recorded_outside_a_recording() -> None:
    look("attn_dcp_size")
    with record_reads() as seen:
        pass
    look("attn_dcp_size")
    assert seen == []


def test_recordings_overlap_and_end_on_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), record_reads() as outer:
        look("attn_dcp_size")
        with record_reads() as inner:
            look("attn_dcp_rank")
        look("dcp_enabled")
        _ = 1 // 0
    look("dcp_enabled")
    assert [read.name for read in inner] == ["attn_dcp_rank"]
    assert [read.name for read in outer] == ["attn_dcp_size", "attn_dcp_rank", "dcp_enabled"]


def test_reads_of_all_threads_are_recorded_and_none_is_lost() -> None:
    together = threading.Barrier(8)

    def as_rank(rank: int) -> None:
        with inject(CONFIG, rank=rank) as worker:
            together.wait(30)
            for _ in range(200):
                _ = worker.tp_rank
            together.wait(30)

    with record_reads() as seen, ThreadPoolExecutor(8) as pool:
        list(pool.map(as_rank, range(8)))
    assert sorted(read.value for read in seen) == sorted(list(range(8)) * 200)


def test_a_copied_context_is_recorded_too() -> None:
    with record_reads() as seen, inject(CONFIG, rank=6):
        copied = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(copied.run, look, "dcp_rank").result() == (2, "")
    assert [(read.name, read.function) for read in seen] == [("dcp_rank", "look")]


def test_an_early_read_of_a_value_that_later_changes_is_reported() -> None:
    with record_reads() as seen:
        at = line() + 1
        kept = get_parallel().attn_dcp_size
        _ = get_parallel().dcp_enabled
        install_parallel(STATE, groups={"dcp": "group"})
    (size, enabled) = early_reads(seen)
    assert kept == 1
    assert size == EarlyRead(
        name="attn_dcp_size",
        value_then=1,
        value_later=4,
        file=__file__,
        line=at,
        function="test_an_early_read_of_a_value_that_later_changes_is_reported",
    )
    assert str(size) == (
        f"{__file__}:{at}: test_an_early_read_of_a_value_that_later_changes_is_reported read attn_dcp_size"
        " before init: 1 then, 4 later"
    )
    assert (enabled.name, enabled.value_then, enabled.value_later) == ("dcp_enabled", False, True)


def test_the_install_reads_again_in_its_callers_name_and_each_name_once() -> None:
    def boot() -> None:
        install_parallel(STATE, groups={"dcp": "group"})

    with record_reads() as seen:
        for name in ("attn_dcp_rank", "tp_rank", "attn_dcp_rank"):
            look(name)
        boot()
    again = seen[3:]
    boot_name = "test_the_install_reads_again_in_its_callers_name_and_each_name_once.<locals>.boot"
    assert [(read.name, read.value, read.function) for read in again] == [
        ("attn_dcp_rank", 2, boot_name),
        ("tp_rank", 6, boot_name),
    ]


def test_an_install_without_a_group_answers_as_before() -> None:
    """Safe reads stay off and loud ones raise: nothing has changed yet, and nothing is reported."""
    with record_reads() as seen:
        for name in ("attn_dcp_size", "dcp_size"):
            look(name)
        install_parallel(STATE)
    assert [(read.name, read.error) for read in seen[2:]] == [
        ("attn_dcp_size", ""),
        ("dcp_size", "NoGroupError"),
    ]
    assert early_reads(seen) == []


def test_a_swallowed_error_is_an_early_read_too() -> None:
    with record_reads() as seen:
        look("dcp_size")
        install_parallel(STATE, groups={"dcp": "group"})
    (early,) = early_reads(seen)
    assert (early.value_then, early.value_later) == ("NoGroupError", 4)


def test_a_value_that_stays_is_no_finding() -> None:
    alone = ParallelState.trivial()
    with record_reads() as seen:
        look("attn_dcp_size")
        look("dcp_enabled")
        install_parallel(alone, groups={"dcp": "one"})
        look("attn_dcp_size")
    assert early_reads(seen) == []


def test_a_loop_is_reported_once_and_two_places_twice() -> None:
    with record_reads() as seen:
        for _ in range(3):
            _ = get_parallel().attn_dcp_size
        _ = get_parallel().attn_dcp_size
        install_parallel(STATE, groups={"dcp": "group"})
    first, second = early_reads(seen)
    assert second.line == first.line + 1


def read(name: str, value: object, phase: Phase, *, line: int = 1, error: str = "") -> Read:
    return Read(name=name, value=value, phase=phase, file="a.py", line=line, function="f", error=error)


READS = st.lists(
    st.builds(
        read,
        st.sampled_from(["a", "b"]),
        st.integers(0, 2),
        st.sampled_from([*Phase]),
        line=st.integers(1, 2),
        error=st.sampled_from(["", "", "E"]),
    ),
    max_size=12,
)


@rule
@given(seen=READS)
def test_early_reads_equal_a_search_of_all_pairs(seen: list[Read]) -> None:
    def answer(one: Read) -> object:
        return one.error if one.error else one.value

    expected = []
    for i in range(len(seen)):
        changes = [
            answer(seen[j])
            for j in range(len(seen))
            if j > i
            and seen[i].phase == "before_init"
            and seen[j].phase == "live"
            and seen[i].name == seen[j].name
            and answer(seen[i]) != answer(seen[j])
        ]
        row = (seen[i].name, answer(seen[i]), changes[0] if changes else None, seen[i].line)
        if changes and row not in expected:
            expected.append(row)
    found = [(early.name, early.value_then, early.value_later, early.line) for early in early_reads(seen)]
    assert found == expected


def test_what_was_recorded_cannot_change_and_is_made_by_name() -> None:
    one = read("a", 1, Phase.LIVE)
    early = EarlyRead(name="a", value_then=1, value_later=2, file="a.py", line=1, function="f")
    for record in (one, early):
        with pytest.raises(FrozenInstanceError):
            record.name = "b"
        assert not hasattr(record, "__dict__")
        with pytest.raises(TypeError):
            type(record)("a", 1, 2, "a.py", 1, "f")


def test_what_stands_at_the_bottom_of_the_stack_is_the_call_site() -> None:
    """Should nobody outside the room have asked, the outermost frame is named."""
    seen: list[str] = []
    inside = {"__name__": "harness.topology.elsewhere", "reads": reads, "seen": seen}
    code = compile("seen.append(reads._call_site().f_code.co_name)", "inside", "exec")
    thread = threading.Thread(target=exec, args=(code, inside))
    thread.start()
    thread.join()
    exec(code, {**inside, "__name__": "harness.topology_other"})
    exec(code, {"reads": reads, "seen": seen})  # a frame that has no module
    assert seen == ["run", "<module>", "<module>"]
