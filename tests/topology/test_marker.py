"""The marker, in pytest runs of their own: which ranks run, under which ids, and what is refused."""

from __future__ import annotations

import pytest

from harness.errors import TopologyError
from harness.topology import ParallelConfig
from harness.topology.marker import expand
from harness.topology.sizes import config_of, label_of

pytest_plugins = ["pytester"]


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\naddopts = --strict-markers\n")
    pytester.makepyfile(f"import pytest\nfrom harness.topology import get_parallel\n{source}")
    return pytester.runpytest_inprocess("-p", "harness.topology.marker", "-p", "no:cacheprovider", *arguments)


def test_ids_name_topology_and_rank(pytester: pytest.Pytester) -> None:
    source = "@pytest.mark.topology(tp=8, dcp=[2, 4, 8])\ndef test_a(parallel): pass\n"
    done = run(pytester, source, "--collect-only", "-q")
    found = [line.partition("::")[2] for line in done.outlines if "::" in line]
    assert found == [f"test_a[tp8-dcp{dcp}-rank{rank}]" for dcp in (2, 4, 8) for rank in range(8)]


def test_each_test_runs_as_its_rank(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.topology(tp=4, dcp=[2, 4])
@pytest.mark.parametrize("other", ["x"])
def test_asking(parallel, other):
    group = list(get_parallel().dcp_group)
    assert group[parallel.dcp_rank] == parallel.rank == get_parallel().tp_rank
    assert len(group) == parallel.seed.dcp_size == parallel.ps.attn_dcp_size

@pytest.mark.parametrize("other", ["x"])
def test_otherwise_marked(request, other):
    assert get_parallel().attn_dcp_size == 1
    assert "parallel" not in request.fixturenames

@pytest.mark.topology(tp=1)
def test_fixtures(request, parallel):
    assert request.fixturenames.count("parallel") == 1

@pytest.mark.topology(tp=2, dcp=2)
def test_not_asking(request):
    assert get_parallel().dcp_size == 2
    assert f"rank{get_parallel().dcp_rank}" in request.node.name

def test_plain():
    assert get_parallel().attn_dcp_size == 1
"""
    run(pytester, source, "-q").assert_outcomes(passed=13)


def test_fixtures_of_the_test_are_set_up_as_its_rank_and_wider_ones_are_not(
    pytester: pytest.Pytester,
) -> None:
    source = """
def size(): return get_parallel().attn_dcp_size
fixtures = {scope: pytest.fixture(size, scope=scope) for scope in ("session", "module", "class")}
in_session, in_module, in_class = fixtures["session"], fixtures["module"], fixtures["class"]

@pytest.fixture(autouse=True)
def automatic():
    yield size()
    assert size() == 4  # and torn down as well

@pytest.fixture
def asked(in_session): return size(), in_session

@pytest.fixture
def late(): return size()

@pytest.mark.topology(tp=4, dcp=4)
class TestMarked:
    def setup_method(self): self.size = size()
    def teardown_method(self): assert size() == 4

    def test_first(self, asked, automatic, parallel): assert (asked, automatic, self.size) == ((4, 1), 4, 4)
    def test_only(self, asked, automatic): assert (asked, automatic, self.size) == ((4, 1), 4, 4)
    def test_wider(self, in_session, in_module, in_class): assert in_session == in_module == in_class == 1
    def test_by_name(self, request): assert request.getfixturevalue("late") == 4
    @pytest.mark.parametrize("late", [0], indirect=True)
    def test_with_a_parameter(self, late): assert late == 4
"""
    run(pytester, source, "-q").assert_outcomes(passed=20)


MARKED_TEST_CASE = """
import unittest
@pytest.mark.topology(tp=2)
class TestA(unittest.TestCase):
    def test_a(self): pass
"""
MARKED_PARAMETER = """
@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.topology(tp=2))])
def test_a(a): pass
"""


@pytest.mark.parametrize("source", [MARKED_TEST_CASE, MARKED_PARAMETER])
def test_a_mark_that_does_not_reach_its_test_is_an_error(pytester: pytest.Pytester, source: str) -> None:
    done = run(pytester, source, "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*it does not reach a unittest.TestCase, nor*pytest.param(marks=...)*"])


def test_several_marks_add_up_and_each_rank_runs_once(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.topology(tp=[1, 2], dcp=1)
class TestMarked:
    @pytest.mark.topology(tp=2, dcp=2)
    @pytest.mark.topology(tp=2, dcp=[1, 2])
    def test_a(self, parallel): pass
"""
    done = run(pytester, source, "--collect-only", "-q")
    found = [line.partition("[")[2].rstrip("]") for line in done.outlines if "::" in line]
    assert sorted(found) == [
        "tp1-dcp1-rank0",
        "tp2-dcp1-rank0",
        "tp2-dcp1-rank1",
        "tp2-dcp2-rank0",
        "tp2-dcp2-rank1",
    ]


def test_the_block_is_closed_after_a_test_that_fails(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.topology(tp=2, dcp=2)
def test_failing():
    raise RuntimeError("on purpose")

def test_after():
    assert get_parallel().attn_dcp_size == 1
"""
    run(pytester, source, "-q").assert_outcomes(failed=2, passed=1)


def test_the_fixture_alone_says_what_it_needs(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_a(parallel): pass\n", "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'parallel' needs @pytest.mark.topology(...) on the test*"])


def test_hooks_forwarded_by_a_second_plugin_parametrize_once(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "from harness.topology import marker\n"
        "def pytest_configure(config): marker.configure(config)\n"
        "def pytest_generate_tests(metafunc): marker.generate(metafunc)\n"
        "def pytest_itemcollected(item): marker.complete(item)\n"
    )
    source = "@pytest.mark.topology(tp=2)\ndef test_a(parallel): pass\n"
    run(pytester, source, "-q").assert_outcomes(passed=2)


def test_a_mark_that_cannot_be_built_is_a_collection_error(pytester: pytest.Pytester) -> None:
    source = "@pytest.mark.topology(tp=4, dcp=[2, 3])\ndef test_a(parallel): pass\n"
    done = run(pytester, source, "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*::test_a: mark topology: tp_size 4 is not divisible by dcp_size 3: *"])
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*marker.py*")
    done.stdout.no_fnmatch_line("*During handling*")


def test_a_mark_without_keywords_is_a_collection_error(pytester: pytest.Pytester) -> None:
    done = run(pytester, "@pytest.mark.topology(8, tp=8)\ndef test_a(parallel): pass\n", "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*::test_a: mark topology: takes keywords of *, but was given 8"])


def test_the_marker_is_listed(pytester: pytest.Pytester) -> None:
    run(pytester, "", "--markers").stdout.fnmatch_lines(
        ["@pytest.mark.topology(tp=8, dcp=?2, 4, 8], ...): *"]
    )


@pytest.mark.parametrize(
    ("args", "sizes", "message"),
    [
        ((8,), {"dcp": 2}, r"enable_dp_attention, but was given 8$"),
        ((), {}, r"takes keywords of tp, pp, .*enable_dp_attention, but was given none$"),
        ((), {"tp": 4, "dpc": 2}, r"keywords of tp, .*, but was given dpc; did you mean 'dcp'\?$"),
        ((), {"tp_size": 4}, r"was given tp_size$"),
        ((), {"tp": 4, "dcp": []}, "dcp is an empty list"),
        ((), {"tp": "4"}, "tp_size is '4'"),
    ],
)
def test_marks_that_mean_nothing_are_refused(args: tuple, sizes: dict, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        expand(*args, **sizes)


def test_a_mistyped_key_is_a_collection_error_with_the_nearest(pytester: pytest.Pytester) -> None:
    source = "@pytest.mark.topology(tp=8, dpc=4)\ndef test_a(parallel): pass\n"
    done = run(pytester, source, "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*::test_a: mark topology: *was given dpc; did you mean 'dcp'[?]*"])


def test_a_test_of_a_whole_world_runs_once_a_topology_and_uninjected(pytester: pytest.Pytester) -> None:
    source = """
@pytest.fixture
def dcp_world(request): return [request.param]

@pytest.fixture(autouse=True)
def early(): return get_parallel().attn_dcp_size

@pytest.mark.topology(tp=[2, 4], dcp=[1, 2])
@pytest.mark.topology(tp=2, dcp=2)
def test_a(dcp_world, early):
    (world,) = dcp_world
    assert (world.rank, early, get_parallel().attn_dcp_size) == (0, 1, 1)
    assert world.config.tp_size in (2, 4)
"""
    done = run(pytester, source, "-v")
    done.assert_outcomes(passed=4)
    found = [line.partition("[")[2].partition("]")[0] for line in done.outlines if " PASSED" in line]
    assert sorted(found) == ["tp2-dcp1", "tp2-dcp2", "tp4-dcp1", "tp4-dcp2"]


def test_one_rank_and_all_of_them_exclude_each_other(pytester: pytest.Pytester) -> None:
    source = """
@pytest.fixture
def dcp_world(request): return request.param

@pytest.mark.topology(tp=2)
def test_a(dcp_world, parallel): pass
"""
    done = run(pytester, source, "-q")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(
        [
            "*::test_a: a test is one rank (fixture 'parallel') or has all of them (fixture 'dcp_world'), not both"
        ]
    )
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*marker.py*")


def test_mock_workers_are_of_the_rank_that_the_test_is(pytester: pytest.Pytester) -> None:
    source = """
@pytest.mark.topology(tp=4, dcp=2)
def test_marked(mock_worker, parallel):
    worker = mock_worker(page_size=16)
    assert (worker.ps, worker.server_args.dcp_size, worker.page_size) == (parallel.ps, 2, 16)

def test_plain(mock_worker):
    assert (mock_worker().ps.tp_size, mock_worker().server_args.tp_size) == (1, 1)
"""
    run(pytester, source, "-q").assert_outcomes(passed=5)


def test_sizes_alone_make_a_config() -> None:
    assert config_of(tp=8, dcp=4) == ParallelConfig(tp_size=8, dcp_size=4)
    assert label_of(tp=8, dcp=4, enable_dp_attention=True) == "tp8-dcp4-enable_dp_attentionTrue"
    with pytest.raises(TopologyError, match=r"but was given dpc; did you mean 'dcp'\?$"):
        config_of(tp=8, dpc=4)
    with pytest.raises(TopologyError, match=r"but was given none$"):
        config_of()


def test_every_key_reaches_the_config() -> None:
    points = expand(tp=8, pp=2, dp=2, attn_cp=2, dcp=2, ep=4, moe_dp=2, enable_dp_attention=True)
    config = points[-1].config
    assert len(points) == 16
    assert (config.attn_tp_size, config.moe_tp_size, config.pp_size, config.dcp_size) == (2, 1, 2, 2)
    assert points[9].id == "tp8-pp2-dp2-attn_cp2-dcp2-ep4-moe_dp2-enable_dp_attentionTrue-rank9"
