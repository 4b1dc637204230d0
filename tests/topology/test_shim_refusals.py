"""What `inject()` refuses before anything is injected: with which words, and that nothing is left behind."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.errors import HarnessError, InjectionError, TopologyError, UnknownNameError, UsageError
from harness.topology import ParallelConfig, ParallelState, get_parallel, inject, injections
from harness.topology.names import hint, known_keywords, nearest, unknown_name

TP8 = ParallelConfig(tp_size=8, dcp_size=4)
RANK6 = ParallelState.from_config(TP8, tp_rank=6)

SLICES = "DCP groups are contiguous slices of equal size of each attention TP group"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rank below": (
        lambda: inject(TP8, rank=-1),
        "rank is -1, but must be an integer in 0..7 (tp * pp of config)",
    ),
    "rank above": (
        lambda: inject(TP8, rank=8),
        "rank is 8, but must be an integer in 0..7 (tp * pp of config)",
    ),
    "rank is a bool": (
        lambda: inject(TP8, rank=True),
        "rank is True, but must be an integer in 0..7 (tp * pp of config)",
    ),
    "rank not in live": (
        lambda: inject(TP8, rank=5, live=ParallelConfig(tp_size=4)),
        "rank is 5, but must be an integer in 0..3 (tp * pp of live)",
    ),
    "rank not in ps": (
        lambda: inject(TP8, rank=4, ps=ParallelConfig(tp_size=2, pp_size=2)),
        "rank is 4, but must be an integer in 0..3 (tp * pp of ps)",
    ),
    "config is a number": (lambda: inject(8), "config is 8, but must be a ParallelConfig"),
    "config is a state": (lambda: inject(RANK6), f"config is {RANK6!r}, but must be a ParallelConfig"),
    "seed is a state": (lambda: inject(TP8, seed=RANK6), f"seed is {RANK6!r}, but must be a ParallelConfig"),
    "ps is a size": (lambda: inject(TP8, ps=4), "ps is 4, but must be a ParallelState or a ParallelConfig"),
    "live is a dict": (
        lambda: inject(TP8, live={"dcp": 2}),
        "live is {'dcp': 2}, but must be a ParallelState or a ParallelConfig",
    ),
    "live contradicts itself": (
        lambda: inject(TP8, rank=6, live=replace(RANK6, attn_dcp_rank=1)),
        f"live contradicts itself: attn_dcp_rank is 1, but tp_rank 6 % attn_dcp_size 4 is 2: {SLICES}",
    ),
    "ps contradicts itself": (
        lambda: inject(TP8, rank=6, ps=replace(RANK6, attn_dcp_rank=0)),
        f"ps contradicts itself: attn_dcp_rank is 0, but tp_rank 6 % attn_dcp_size 4 is 2: {SLICES}",
    ),
    "mistyped argument": (
        lambda: inject(TP8, rnak=1),
        "inject() has no argument 'rnak'; did you mean 'rank'?",
    ),
    "unlike argument": (lambda: inject(TP8, zzz=1), "inject() has no argument 'zzz'"),
    "mistyped target": (
        lambda: inject(TP8, target="sgalng"),
        "target is 'sgalng'; allowed: reference, sglang; did you mean 'sglang'?",
    ),
    "unlike target": (lambda: inject(TP8, target="xx"), "target is 'xx'; allowed: reference, sglang"),
    "no target": (lambda: inject(TP8, target=None), "target is None; allowed: reference, sglang"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_injected_is_refused_when_asked_for(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(TopologyError) as caught:
        call()
    assert str(caught.value) == message
    assert injections.current() is None
    assert get_parallel().attn_dcp_size == 1


def test_a_block_that_was_never_entered_injects_nothing() -> None:
    block = inject(TP8, rank=5)
    assert get_parallel().attn_dcp_size == 1
    with block as worker:
        assert worker.rank == 5


def test_inject_decorates_functions_too() -> None:
    @inject(TP8, rank=5)
    def read() -> int:
        return get_parallel().dcp_rank

    assert [read(), read()] == [1, 1]
    assert get_parallel().attn_dcp_size == 1


def test_the_target_reference_is_what_one_gets_unasked() -> None:
    with inject(TP8, rank=5, target="reference") as named, inject(TP8, rank=5) as unasked:
        assert type(named) is type(unasked)
        assert (named.rank, named.seed, named.ps) == (unasked.rank, unasked.seed, unasked.ps)


def test_the_target_sglang_opens_its_own_block_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What that block does needs the package; here only that it is given the block and yields its worker."""
    given = []

    @contextmanager
    def own_block(injection: object, worker: object) -> Iterator[object]:
        given.append((injection, worker, injections.current()))
        yield "the package's worker"

    monkeypatch.setattr("harness.topology.targets.sglang.inject_sglang", own_block)
    with inject(TP8, rank=5, target="sglang") as found:
        assert found == "the package's worker"
        ((injection, worker, innermost),) = given
        assert injection is innermost is injections.current()
        assert (worker.rank, worker.dcp_rank, worker.seed) == (5, 1, TP8)
    assert injections.current() is None


def fails(error: Exception) -> None:
    raise error


def test_an_exception_passes_through_the_blocks_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's own block hears of it, and who catches it sees where it was raised."""
    heard = []

    @contextmanager
    def own_block(injection: object, worker: object) -> Iterator[object]:
        try:
            yield worker
        except LookupError as error:
            heard.append(error)
            raise

    monkeypatch.setattr("harness.topology.targets.sglang.inject_sglang", own_block)
    error = LookupError("no such head")
    with pytest.raises(LookupError) as caught, inject(TP8, target="sglang"):
        fails(error)
    assert caught.value is heard[0] is error
    assert caught.traceback[-1].name == "fails"


MISTYPED = {
    "attn_dpc_size": "attn_dcp_size",
    "dcp_sise": "dcp_size",
    "dcp_grop": "dcp_group",
    "tp_ranks": "tp_rank",
    "dcp_enable": "dcp_enabled",
}


@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_live_name_raises_with_the_nearest(name: str) -> None:
    message = f"the live topology has no {name!r}; did you mean {MISTYPED[name]!r}?"
    with inject(TP8, rank=5) as worker:
        for view in (worker, get_parallel()):
            with pytest.raises(UnknownNameError) as caught:
                getattr(view, name)
            assert (str(caught.value), caught.value.nearest) == (message, MISTYPED[name])
    with pytest.raises(UnknownNameError, match=re.escape(message)):
        getattr(get_parallel(), name)


def test_the_workers_own_names_are_suggested_for_it_alone() -> None:
    with inject(TP8) as worker:
        with pytest.raises(UnknownNameError, match=r"has no 'sede'; did you mean 'seed'\?$"):
            _ = worker.sede
        with pytest.raises(UnknownNameError, match=r"^the live topology has no 'sede'$"):
            _ = get_parallel().sede


def test_what_is_private_is_never_suggested() -> None:
    with inject(TP8) as worker:
        for name in ("_injectio", "_dc", "__slot__"):
            with pytest.raises(UnknownNameError) as caught:
                getattr(worker, name)
            assert not (caught.value.nearest or "").startswith("_")


def test_an_unknown_name_is_an_attribute_error_too() -> None:
    live = get_parallel()
    assert not hasattr(live, "dcp_sise")
    assert getattr(live, "dcp_sise", 7) == 7
    assert copy.copy(live) is not None
    assert pickle.loads(pickle.dumps(live)).attn_dcp_size == 1
    assert issubclass(UnknownNameError, TopologyError)
    assert issubclass(UnknownNameError, UsageError)
    assert issubclass(UnknownNameError, AttributeError)


def test_nothing_can_be_set_on_the_live_topology() -> None:
    with inject(TP8) as worker:
        for view in (worker, get_parallel()):
            with pytest.raises(AttributeError):
                view.dcp_size = 2
        assert worker.dcp_size == 4


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("dpc", ["dp", "dcp"], "dcp"),
        ("rnak", ["rank", "bank"], "rank"),
        ("rank", ["bank"], "bank"),
        ("tp", ["pages"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_name(name: str, names: list[str], expected: str | None) -> None:
    assert nearest(name, iter(names)) == expected
    assert hint(name, iter(names)) == ("" if expected is None else f"; did you mean {expected!r}?")
    error = unknown_name("it", name, {other: f"at.{other}" for other in names})
    place = None if expected is None else f"at.{expected}"
    assert error.nearest == place
    assert str(error) == f"it has no {name!r}" + ("" if place is None else f"; did you mean {place!r}?")


def test_known_keywords_pass_everything_else_on() -> None:
    @known_keywords
    def add(first: int, *, second: int = 2) -> int:
        """Doc."""
        return first + second

    assert (add(1), add(1, second=5), add(first=3)) == (3, 6, 5)
    assert (add.__name__, add.__doc__) == ("add", "Doc.")
    with pytest.raises(TypeError):
        add()
    with pytest.raises(TopologyError, match=r"^add\(\) has no argument 'secnod'; did you mean 'second'\?$"):
        add(1, secnod=2)


def test_errors_of_the_shim_are_harness_errors() -> None:
    assert issubclass(InjectionError, HarnessError)
    assert TopologyError.exit_code == 2
