"""Targets where no SGLang is: the refusal, the reference's answers, and which tests a target leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_rules import rule

from harness.errors import InjectionError, TopologyError, UsageError
from harness.topology import KVLayout, ParallelConfig, get_parallel, inject
from harness.topology.targets import plugin
from harness.topology.targets.layout import ALL_FUNCTIONS, INTERLEAVED, Function, layout_target, named

pytest_plugins = ["pytester"]

CHECKOUT = Path(__file__).resolve().parents[2]
REFERENCE = layout_target("reference")

layouts = st.builds(
    lambda dcp, interleave, turns: KVLayout(
        dcp_size=dcp, page_size=interleave * turns, interleave=interleave
    ),
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 4),
)


def deal(layout: KVLayout, slots: int) -> tuple[list[int], list[int]]:
    """Owner and row of each slot from 0 on: ranks take `interleave` slots in turn, each fills its rows in order."""
    owners: list[int] = []
    while len(owners) < slots:
        owners += [rank for rank in range(layout.dcp_size) for _ in range(layout.interleave)]
    taken = [0] * layout.dcp_size
    rows = []
    for owner in owners:
        rows.append(taken[owner])
        taken[owner] += 1
    return owners, rows


def test_without_the_package_one_line_says_what_to_do() -> None:
    with pytest.raises(InjectionError, match=r"make sglang VERSION=0\.5\.18.*--target sglang") as caught:
        with inject(ParallelConfig(tp_size=2), target="sglang"):
            pytest.fail("the block ran without the package")
    assert "\n" not in str(caught.value)
    with pytest.raises(TopologyError):
        get_parallel().tp_rank  # noqa: B018 - nothing stayed injected


def test_layout_target_without_the_package_says_the_same() -> None:
    with pytest.raises(InjectionError, match="make sglang VERSION="):
        layout_target("sglang")


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(TopologyError, match="sglang"):
        inject(ParallelConfig(), target="sglan")
    with pytest.raises(UsageError, match="'vllm'; allowed: reference, sglang"):
        layout_target("vllm")


def test_importing_topology_imports_no_target() -> None:
    code = "import sys, harness.topology; print([m for m in sys.modules if 'torch' in m or 'sglang' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_reference_has_every_function() -> None:
    assert type(layout_target("reference")) is type(REFERENCE)
    assert REFERENCE.name == "reference"
    assert REFERENCE.functions == ALL_FUNCTIONS
    assert len(ALL_FUNCTIONS) == len(Function) + len(INTERLEAVED)
    assert [named(Function.ROWS, interleave) for interleave in (1, 2, 16)] == [
        "rows of a rank",
        "rows of a rank, interleaved",
        "rows of a rank, interleaved",
    ]
    assert named(Function.ROWS) == "rows of a rank"


def test_the_reference_answers_as_counted_by_hand() -> None:
    layout = KVLayout(dcp_size=2, page_size=4)
    assert REFERENCE.local_lens_in_place(layout, 1, [5, 9]) == [2, 4]
    assert REFERENCE.slots(layout, [3, 1], 10) == [24, 25, 26, 27, 28, 29, 30, 31, 8, 9]
    assert (REFERENCE.num_pages(layout, 9), REFERENCE.capacity(layout, 12)) == (2, 24)
    assert REFERENCE.chain_lens(layout, 0, [3, 2], 3) == [1, 1, 2, 0, 0, 0]
    assert REFERENCE.page_rows(layout, 0, [*range(24, 32), *range(8, 16)]) == [12, 13, 14, 15, 4, 5, 6, 7]
    assert REFERENCE.page_rows(KVLayout(dcp_size=1, page_size=1), 0, [5, 3]) == [5, 3]
    staged = ParallelConfig(tp_size=4, pp_size=2, dcp_size=2)
    assert REFERENCE.tp_groups(staged) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert REFERENCE.dcp_groups(staged) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert REFERENCE.q_heads(num_q_heads=8, num_kv_heads=2, config=staged, rank=3) == [6, 7]
    assert REFERENCE.kv_heads(num_q_heads=8, num_kv_heads=4, config=staged, rank=2) == [2, 3]
    assert [REFERENCE.kv_head_count(num_kv_heads=heads, config=staged) for heads in (1, 4)] == [1, 2]


def test_the_reference_refuses_what_does_not_belong_together() -> None:
    layout = KVLayout(dcp_size=2, page_size=4)
    assert REFERENCE.local_lens(layout, 0, [5, 9], [1, 2]) == [2, 4]
    with pytest.raises(ValueError, match="shorter"):
        REFERENCE.local_lens(layout, 0, [5, 9], [1])
    staged = ParallelConfig(tp_size=4, pp_size=2, dcp_size=2)
    assert [REFERENCE.seat(staged, rank) for rank in (2, 3, 7)] == [(0, 2), (1, 2), (1, 2)]
    with pytest.raises(TopologyError, match=r"^pp_rank is 2, but must be an integer in 0\.\.1$"):
        REFERENCE.seat(staged, 8)


@pytest.fixture
def harness_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pytest processes that start in a folder of their own."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))


@rule
@given(layout=layouts, data=st.data())
def test_rows_are_as_dealt(layout: KVLayout, data: st.DataObject) -> None:
    owners, rows = deal(layout, 120)
    slots = data.draw(st.lists(st.integers(-1, 119), max_size=20))
    rank = data.draw(st.integers(0, layout.dcp_size - 1))
    seen = [rows[s] if s >= 0 and owners[s] == rank else -1 for s in slots]
    mine = [row for row in seen if row >= 0]
    assert REFERENCE.localize(layout, rank, slots) == seen
    assert REFERENCE.sparse_rows(layout, rank, slots) == mine + [-1] * (len(slots) - len(mine))
    assert REFERENCE.rows(layout, rank, [slot for slot in slots if slot >= 0]) == mine


@rule
@given(layout=layouts, data=st.data())
def test_chunks_and_chains_are_as_dealt(layout: KVLayout, data: st.DataObject) -> None:
    """A sequence whose pages lie in order from page 0: its positions are its slots."""
    owners, rows = deal(layout, 120)
    rank = data.draw(st.integers(0, layout.dcp_size - 1))
    stretches = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=4))
    chunks = [(start, list(range(start, start + size))) for start, size in stretches]
    mine = [rows[slot] for _, slots in chunks for slot in slots if owners[slot] == rank]
    assert REFERENCE.chunk_rows(layout, rank, chunks) == mine
    lengths = data.draw(st.lists(st.integers(0, 100), max_size=5))
    tokens = data.draw(st.integers(1, 5))
    steps = [owners[: length - back].count(rank) if length >= tokens else 0
             for length in lengths for back in reversed(range(tokens))]  # fmt: skip
    assert REFERENCE.chain_lens(layout, rank, lengths, tokens) == steps


@rule
@given(layout=layouts, pages=st.lists(st.integers(0, 5), max_size=3, unique=True))
def test_whole_pages_are_as_dealt(layout: KVLayout, pages: list[int]) -> None:
    owners, rows = deal(layout, 6 * layout.widened_page_size)
    width = len([None for _ in range(layout.page_size) for _ in range(layout.dcp_size)])
    slots = [page * width + offset for page in pages for offset in range(width)]
    for rank in range(layout.dcp_size):
        mine = [rows[slot] for slot in slots if owners[slot] == rank]
        assert REFERENCE.page_rows(layout, rank, slots) == mine


@rule
@given(layout=layouts, data=st.data())
def test_an_admitted_request_is_the_longest_that_stays_below_the_cap(
    layout: KVLayout, data: st.DataObject
) -> None:
    pages = data.draw(st.integers(1, 6))
    input_len, asked = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 200))
    left = pages * REFERENCE.admission_page(layout)
    for _ in range(1 + len(range(0, input_len, REFERENCE.admission_page(layout)))):
        left -= REFERENCE.admission_page(layout)
    sizes = {"input_len": input_len, "asked": asked, "rows_per_rank": pages * layout.page_size}
    assert REFERENCE.admitted(layout, **sizes) == max(0, min(asked, left - 1))


class PoorTarget:
    name = "poor 1.0"
    functions = frozenset({"capacity", "rows of a rank"})


def test_tests_that_need_a_missing_function_are_deselected(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "make_target", lambda name: PoorTarget())
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.layout_functions("capacity")
        def test_has(layout_target): assert layout_target.name == "poor 1.0"

        @pytest.mark.layout_functions("capacity", "rows or -1")
        def test_lacks(layout_target): raise AssertionError

        @pytest.mark.parametrize("interleave", [
            pytest.param(1, marks=pytest.mark.layout_functions("rows of a rank")),
            pytest.param(4, marks=pytest.mark.layout_functions("rows of a rank, interleaved")),
        ])
        def test_some(interleave): assert interleave == 1

        def test_unmarked(checked_functions): assert checked_functions == {"capacity", "rows of a rank"}
        """
    )
    options = ["-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider", "--strict-markers"]
    pytester.runpytest(*options).assert_outcomes(passed=3, deselected=2)
    # what is checked does not depend on what else narrows the run
    pytester.runpytest(*options, "-k", "unmarked").assert_outcomes(passed=1, deselected=4)


ASKS_FOR_CAPACITY = """
    import pytest

    @pytest.mark.layout_functions("capacity")
    def test_it(layout_target): assert layout_target
"""


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], "reference"),
        (["--harness-target", "sglang"], "sglang"),
        (["--harness-target", "sglang@0.5"], "sglang"),
    ],
)
def test_the_target_is_the_one_that_the_run_names(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: list[str], asked: str
) -> None:
    made = []
    monkeypatch.setattr(plugin, "make_target", lambda name: made.append(name) or PoorTarget())
    run_with_option(pytester, *options).assert_outcomes(passed=1)
    assert made == [asked]


def test_a_target_that_is_none_ends_the_run_with_one_line(pytester: pytest.Pytester) -> None:
    result = run_with_option(pytester, "--harness-target", "vllm")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: target is 'vllm'; allowed: reference, sglang"])


def run_with_option(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """The plugin alone, without the one that has the option in real runs."""
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--harness-target')")
    pytester.makepyfile(ASKS_FOR_CAPACITY)
    plugins = ["-p", "no:harness", "-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider"]
    return pytester.runpytest_inprocess(*plugins, *options)


def test_an_unknown_function_ends_the_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.layout_functions("capactiy")
        def test_it(): pass
        """
    )
    result = pytester.runpytest("-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it: mark layout_functions: there is no function 'capactiy'"])


def test_the_mark_is_listed(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest("-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider", "--markers")
    done.stdout.fnmatch_lines(["@pytest.mark.layout_functions(*names): functions of the layout target *"])


def test_other_tests_are_left_alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No target is made for a run that has no layout tests."""
    monkeypatch.setattr(plugin, "make_target", None)
    pytester.makepyfile("def test_it(): pass")
    options = ["-p", "harness.topology.targets.plugin", "-p", "no:cacheprovider"]
    pytester.runpytest(*options).assert_outcomes(passed=1)


@pytest.mark.usefixtures("harness_importable")
def test_a_missing_package_ends_the_run_with_one_line(pytester: pytest.Pytester) -> None:
    suite = CHECKOUT / "suites" / "dcp" / "layout_unit.yaml"
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(str(suite), *plugins, "--harness-target", "sglang")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: target sglang: the package is not importable here; *"])


@pytest.mark.usefixtures("harness_importable")
def test_the_suite_holds_the_references_table(pytester: pytest.Pytester) -> None:
    """Whole: it passes. One file alone asks for less than there is, and says so."""
    plugins = ["-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider"]
    suite = CHECKOUT / "suites" / "dcp" / "layout_unit.yaml"
    result = pytester.runpytest_subprocess(str(suite), *plugins, "-k", "test_functions")
    assert result.parseoutcomes()["passed"] == 1
    alone = pytester.runpytest_subprocess(str(CHECKOUT / "suites/dcp/test_layout_functions.py"), *plugins)
    assert alone.parseoutcomes() == {"failed": 1}
    alone.stdout.fnmatch_lines(["*no test asks for: bytes of a row*"])
