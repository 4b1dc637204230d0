"""The pytest side of targets: fixtures `layout_target` and `step_target`, and tests that say which functions they need.

    @pytest.mark.layout_functions("rows of a rank", "slots of a sequence")
    def test_rows(layout_target): ...

    @pytest.mark.step_functions("lengths of a step")
    def test_lengths(step_target): ...

A test whose functions the target does not have is deselected when it is collected, not skipped when it runs;
`checked_functions` and `checked_step_functions` hold what the tests that are left ask for, so that one test can prove
nothing disappeared unseen. Loaded by `harness.pytest_plugin`; the target is `--harness-target`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from harness.errors import HarnessError
from harness.topology.targets.layout import ALL_FUNCTIONS, LayoutTarget
from harness.topology.targets.layout import layout_target as make_target
from harness.topology.targets.step import STEP_FUNCTIONS, StepTarget
from harness.topology.targets.step import step_target as make_step_target

MARK = "layout_functions"
STEP_MARK = "step_functions"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of targets: its mark and what that says, every function that one may have, and how one is made."""

    mark: str
    line: str
    every: frozenset[str]
    make: Callable[[str], LayoutTarget | StepTarget]
    target: pytest.StashKey[LayoutTarget | StepTarget] = field(default_factory=pytest.StashKey)
    checked: pytest.StashKey[frozenset[str]] = field(default_factory=pytest.StashKey)


# Made by name at the time of use, so that a test of this plugin can put another in the place of `make_target`.
_LAYOUT = _Kind(
    mark=MARK,
    line=f"{MARK}(*names): functions of the layout target that the test needs (harness.topology.targets.layout)",
    every=ALL_FUNCTIONS,
    make=lambda name: make_target(name),
)
_STEP = _Kind(
    mark=STEP_MARK,
    line=f"{STEP_MARK}(*names): functions of the step target that the test needs (harness.topology.targets.step)",
    every=STEP_FUNCTIONS,
    make=lambda name: make_step_target(name),
)
_KINDS = (_LAYOUT, _STEP)


def pytest_configure(config: pytest.Config) -> None:
    for kind in _KINDS:
        config.addinivalue_line("markers", kind.line)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before anything else narrows the collection: what is checked does not depend on `-k`."""
    for kind in _KINDS:
        _deselect(config, items, kind)


@pytest.fixture(scope="session")
def layout_target(request: pytest.FixtureRequest) -> LayoutTarget:
    """What the layout tests look at."""
    return cast(LayoutTarget, _target(request.config, _LAYOUT))


@pytest.fixture(scope="session")
def checked_functions(request: pytest.FixtureRequest) -> frozenset[str]:
    """The functions that the collected layout tests ask for."""
    return request.config.stash.get(_LAYOUT.checked, frozenset())


@pytest.fixture(scope="session")
def step_target(request: pytest.FixtureRequest) -> StepTarget:
    """What the tests of a step's lengths look at."""
    return cast(StepTarget, _target(request.config, _STEP))


@pytest.fixture(scope="session")
def checked_step_functions(request: pytest.FixtureRequest) -> frozenset[str]:
    """The functions that the collected tests of a step's lengths ask for."""
    return request.config.stash.get(_STEP.checked, frozenset())


def _deselect(config: pytest.Config, items: list[pytest.Item], kind: _Kind) -> None:
    needs = {item: _needs(item, kind) for item in items if item.get_closest_marker(kind.mark)}
    if not needs:
        return
    offered = _target(config, kind).functions
    dropped = [item for item, names in needs.items() if not names <= offered]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    kept = (names for names in needs.values() if names <= offered)
    config.stash[kind.checked] = frozenset().union(*kept)


def _target(config: pytest.Config, kind: _Kind) -> LayoutTarget | StepTarget:
    if kind.target not in config.stash:
        given: str = config.getoption("--harness-target", default=None) or "reference"
        try:
            config.stash[kind.target] = kind.make(given.partition("@")[0])
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[kind.target]


def _needs(item: pytest.Item, kind: _Kind) -> frozenset[str]:
    """The names of all its marks: a function's own, its module's, and its parameters'."""
    names = frozenset(str(name) for mark in item.iter_markers(kind.mark) for name in mark.args)
    if unknown := sorted(names - kind.every):
        raise pytest.UsageError(f"{item.nodeid}: mark {kind.mark}: there is no function {unknown[0]!r}")
    return names
