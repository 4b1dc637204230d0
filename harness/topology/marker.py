"""The pytest marker `topology`: run one test as every rank of every topology it names.

    @pytest.mark.topology(tp=8, dcp=[2, 4, 8])
    def test_ranks_own_their_tokens(parallel): ...      # tp8-dcp2-rank0 .. tp8-dcp8-rank7

A pytest plugin by itself (`-p harness.topology.marker`). While a test is collected the mark becomes
parameters of the fixture `parallel`; while it runs the fixture keeps `inject()` open around it and around its
function-scoped fixtures, whether the test asks for it or not. A test that asks for `dcp_world` (a fixture of
`harness.pytest_plugin`) is not one rank but has all of them: it runs once per topology, uninjected. A mark that
names a topology that cannot be built is a collection error of its test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig
from harness.topology.mock_workers import MockWorker
from harness.topology.mock_workers import mock_worker as make_mock_worker
from harness.topology.shim import InjectedWorker, inject
from harness.topology.sizes import FIELDS, config_of, label_of, require_keys

MARKER_LINE = (
    "topology(tp=8, dcp=[2, 4, 8], ...): run the test once per rank of each topology, as that rank; a list"
    f" means each of its values. Keys: {', '.join(FIELDS)}."
)

# The fixture of a test that has all ranks; whoever provides it is given a `TopologyPoint` of rank 0.
WORLD = "dcp_world"

# Set on a test once it is parametrized: two plugins may both forward the hook.
_DONE = pytest.StashKey[bool]()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPoint:
    """One rank of one topology; `label` names the topology in test ids."""

    label: str
    config: ParallelConfig
    rank: int

    @property
    def id(self) -> str:
        return f"{self.label}-rank{self.rank}"


def configure(config: pytest.Config) -> None:
    """Register the marker, so that `--strict-markers` knows it."""
    config.addinivalue_line("markers", MARKER_LINE)


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that carries the mark, or several: then it runs for all that they name."""
    definition = metafunc.definition
    marks = list(definition.iter_markers("topology"))
    if not marks or definition.stash.get(_DONE, False):
        return
    definition.stash[_DONE] = True
    points = _points(definition.nodeid, marks)
    if WORLD in metafunc.fixturenames:
        _generate_worlds(metafunc, points)
    else:
        _ask_for_parallel(metafunc.fixturenames)
        metafunc.parametrize("parallel", points, indirect=True, ids=[point.id for point in points])


def precede(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Open the injection before any other fixture of the test is set up: one that ran first would read a
    topology that is off, and answer 1 in silence. Wider scopes outlive the test, so they stay outside."""
    outside = fixturedef.scope != "function" or fixturedef.argname == "parallel"
    if not outside and _is_one_rank(request.node):
        request.getfixturevalue("parallel")


def complete(item: pytest.Item) -> None:
    """Let a parametrized test that does not name the fixture have it all the same."""
    if isinstance(item, pytest.Function) and _is_one_rank(item):
        _ask_for_parallel(item.fixturenames)


def expand(*args: object, **sizes: object) -> list[TopologyPoint]:
    """Every rank of every combination of the sizes, each a value or a list of values.

    Raises TopologyError for a positional argument, an unknown key, an empty list, no size at all, or a
    topology that cannot be built.
    """
    require_keys(*args, **sizes)
    axes = {key: _values(key, value) for key, value in sizes.items()}
    return [
        point
        for combination in product(*axes.values())
        for point in _ranks(dict(zip(axes, combination, strict=True)))
    ]


@pytest.fixture
def parallel(request: pytest.FixtureRequest) -> Iterator[InjectedWorker]:
    """The rank that the test runs as: live topology, `ps`, `seed` and `rank`."""
    point: TopologyPoint | None = getattr(request, "param", None)
    if point is None:
        pytest.fail(
            "fixture 'parallel' needs @pytest.mark.topology(...) on the test, its class or module; it does not"
            " reach a unittest.TestCase, nor a test from within pytest.param(marks=...)",
            pytrace=False,
        )
    with inject(point.config, rank=point.rank) as worker:
        yield worker


@pytest.fixture
def mock_worker() -> Callable[..., MockWorker]:
    """`harness.topology.mock_worker`: of the rank that the test runs as, where it has the mark."""
    return make_mock_worker


pytest_configure = configure
pytest_generate_tests = generate
pytest_itemcollected = complete
pytest_fixture_setup = pytest.hookimpl(tryfirst=True)(precede)


def _points(nodeid: str, marks: list[pytest.Mark]) -> list[TopologyPoint]:
    """What the marks name, each rank once."""
    try:
        points = [point for mark in marks for point in expand(*mark.args, **mark.kwargs)]
    except TopologyError as error:
        reason = str(error)
    else:
        return list(dict.fromkeys(points))
    pytest.fail(f"{nodeid}: mark topology: {reason}", pytrace=False)


def _generate_worlds(metafunc: pytest.Metafunc, points: list[TopologyPoint]) -> None:
    if "parallel" in metafunc.fixturenames:
        nodeid = metafunc.definition.nodeid
        pytest.fail(
            f"{nodeid}: a test is one rank (fixture 'parallel') or has all of them (fixture {WORLD!r}), not both",
            pytrace=False,
        )
    worlds = [point for point in points if point.rank == 0]
    metafunc.parametrize(WORLD, worlds, indirect=True, ids=[world.label for world in worlds])


def _is_one_rank(item: pytest.Item) -> bool:
    return any(item.iter_markers("topology")) and WORLD not in getattr(item, "fixturenames", ())


def _ask_for_parallel(fixture_names: list[str]) -> None:
    # Needed twice: pytest parametrizes only names that it finds here, and afterwards drops those that neither
    # the signature nor a usefixtures mark gave.
    if "parallel" not in fixture_names:
        fixture_names.append("parallel")


def _values(key: str, value: object) -> list[object]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise TopologyError(f"{key} is an empty list, so the test would never run")
    return values


def _ranks(sizes: dict[str, Any]) -> list[TopologyPoint]:
    config = config_of(**sizes)
    label = label_of(**sizes)
    return [TopologyPoint(label=label, config=config, rank=rank) for rank in range(config.world_size)]
