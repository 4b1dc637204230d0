"""The pytest side of layout targets: the fixture `layout_target`, and tests that say which functions they need.

    @pytest.mark.layout_functions("rows of a rank", "slots of a sequence")
    def test_rows(layout_target): ...

A test whose functions the target does not have is deselected when it is collected, not skipped when it runs;
`checked_functions` holds what the tests that are left ask for, so that one test can prove nothing disappeared
unseen. Loaded by `harness.pytest_plugin`; the target is `--harness-target`.
"""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.topology.targets.layout import ALL_FUNCTIONS, LayoutTarget
from harness.topology.targets.layout import layout_target as make_target

MARK = "layout_functions"
_LINE = (
    f"{MARK}(*names): functions of the layout target that the test needs (harness.topology.targets.layout)"
)

_TARGET = pytest.StashKey[LayoutTarget]()
_CHECKED = pytest.StashKey[frozenset[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _LINE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Before anything else narrows the collection: what is checked does not depend on `-k`."""
    needs = {item: _needs(item) for item in items if item.get_closest_marker(MARK)}
    if not needs:
        return
    offered = _target(config).functions
    dropped = [item for item, names in needs.items() if not names <= offered]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]
    kept = (names for names in needs.values() if names <= offered)
    config.stash[_CHECKED] = frozenset().union(*kept)


@pytest.fixture(scope="session")
def layout_target(request: pytest.FixtureRequest) -> LayoutTarget:
    """What the layout tests look at."""
    return _target(request.config)


@pytest.fixture(scope="session")
def checked_functions(request: pytest.FixtureRequest) -> frozenset[str]:
    """The functions that the collected tests ask for."""
    return request.config.stash.get(_CHECKED, frozenset())


def _target(config: pytest.Config) -> LayoutTarget:
    if _TARGET not in config.stash:
        given: str = config.getoption("--harness-target", default=None) or "reference"
        try:
            config.stash[_TARGET] = make_target(given.partition("@")[0])
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[_TARGET]


def _needs(item: pytest.Item) -> frozenset[str]:
    """The names of all its marks: a function's own, its module's, and its parameters'."""
    names = frozenset(str(name) for mark in item.iter_markers(MARK) for name in mark.args)
    if unknown := sorted(names - ALL_FUNCTIONS):
        raise pytest.UsageError(f"{item.nodeid}: mark {MARK}: there is no function {unknown[0]!r}")
    return names
