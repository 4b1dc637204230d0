"""The pytest marker `topology`: run one test as every rank of every topology it names.

    @pytest.mark.topology(tp=8, dcp=[2, 4, 8])
    def test_ranks_own_their_tokens(parallel): ...      # tp8-dcp2-rank0 .. tp8-dcp8-rank7

A pytest plugin by itself (`-p harness.topology.marker`). While a test is collected the mark becomes
parameters of the fixture `parallel`; while it runs the fixture keeps `inject()` open around it and around its
function-scoped fixtures, whether the test asks for it or not. A mark that names a topology that cannot be
built is a collection error of its test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from harness.errors import TopologyError
from harness.topology.config import ParallelConfig
from harness.topology.shim import InjectedWorker, inject

MARKER_LINE = (
    "topology(tp=8, dcp=[2, 4, 8], ...): run the test once per rank of each topology, as that rank; a list"
    " means each of its values. Keys: tp, pp, dp, attn_cp, dcp, ep, moe_dp, enable_dp_attention."
)

# Keys of the mark are the names that suites use; a config spells sizes out.
_FIELDS = {key: f"{key}_size" for key in ("tp", "pp", "dp", "attn_cp", "dcp", "ep", "moe_dp")}
_FIELDS["enable_dp_attention"] = "enable_dp_attention"

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
    _ask_for_parallel(metafunc.fixturenames)
    metafunc.parametrize("parallel", points, indirect=True, ids=[point.id for point in points])


def precede(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Open the injection before any other fixture of the test is set up: one that ran first would read a
    topology that is off, and answer 1 in silence. Wider scopes outlive the test, so they stay outside."""
    outside = fixturedef.scope != "function" or fixturedef.argname == "parallel"
    if not outside and any(request.node.iter_markers("topology")):
        request.getfixturevalue("parallel")


def complete(item: pytest.Item) -> None:
    """Let a parametrized test that does not name the fixture have it all the same."""
    if isinstance(item, pytest.Function) and any(item.iter_markers("topology")):
        _ask_for_parallel(item.fixturenames)


def expand(*args: object, **sizes: object) -> list[TopologyPoint]:
    """Every rank of every combination of the sizes, each a value or a list of values.

    Raises TopologyError for a positional argument, an unknown key, an empty list, no size at all, or a
    topology that cannot be built.
    """
    if args or not sizes or not sizes.keys() <= _FIELDS.keys():
        found = [*map(repr, args), *sizes]
        raise TopologyError(
            f"takes keywords of {', '.join(_FIELDS)}, but was given {', '.join(found) or 'none'}"
        )
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
    config = ParallelConfig(**{_FIELDS[key]: value for key, value in sizes.items()})
    label = "-".join(f"{key}{value}" for key, value in sizes.items())
    return [TopologyPoint(label=label, config=config, rank=rank) for rank in range(config.world_size)]
