"""Selection: globs, upstream names, tags, triggers; the same in any order; never nothing by accident."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_helpers import GOOD, write

from harness.errors import UsageError
from harness.suites import Catalogue, load_catalogue, select

TAGS = {"dcp/a4": ["smoke", "gqa"], "dcp/a8": ["smoke"], "dcp/deep/b": [], "kernels/c": ["gqa"]}


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    root = tmp_path_factory.mktemp("suites")
    for name, tags in TAGS.items():
        trigger = "nightly" if "a" in name else "pr"
        extra = f"tags: [{', '.join(tags)}]\ntriggers: [{trigger}]\n"
        upstream = "upstream: test/registered/test_a4.py\n" if name == "dcp/a4" else ""
        write(root, GOOD + extra + upstream, f"{name}.yaml")
    return load_catalogue(root)


def names(
    catalogue: Catalogue, *patterns: str, tags: tuple[str, ...] = (), trigger: str | None = None
) -> list[str]:
    return [suite.name for suite in select(catalogue, patterns, tags=tags, trigger=trigger)]


def test_globs_and_upstream_names(catalogue: Catalogue) -> None:
    assert names(catalogue, "*") == sorted(TAGS)
    assert names(catalogue, "dcp/*") == ["dcp/a4", "dcp/a8", "dcp/deep/b"]
    assert names(catalogue, "dcp/a?") == ["dcp/a4", "dcp/a8"]
    assert names(catalogue, "kernels/c", "dcp/a[8]") == ["dcp/a8", "kernels/c"]
    assert names(catalogue, "test/registered/test_a4.py", "dcp/a4") == ["dcp/a4"]


def test_all_tags_and_the_trigger_must_be_there(catalogue: Catalogue) -> None:
    assert names(catalogue, "*", tags=("smoke",)) == ["dcp/a4", "dcp/a8"]
    assert names(catalogue, "*", tags=("smoke", "gqa")) == ["dcp/a4"]
    assert names(catalogue, "*", trigger="pr") == ["dcp/deep/b", "kernels/c"]
    assert names(catalogue, "*", tags=("gqa",), trigger="nightly") == ["dcp/a4"]


def test_a_pattern_without_match_lists_near_names(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match=r"^no suite matches 'dcp/nothing'; near names: dcp/"):
        select(catalogue, ["dcp/nothing"])
    with pytest.raises(UsageError, match="no suite matches 'dcp/A4'; near names: dcp/a4, "):
        select(catalogue, ["dcp/a8", "dcp/A4"])
    with pytest.raises(UsageError, match=r"near names: test/registered/test_a4\.py"):
        select(catalogue, ["test/registered/test_a4"])


def test_near_names_are_told_once(catalogue: Catalogue) -> None:
    twice = Catalogue(root=catalogue.root, suites=(*catalogue.suites, *catalogue.suites))
    with pytest.raises(UsageError, match=r"near names: dcp/a8, dcp/a4, ") as raised:
        select(twice, ["dcp/a5[dcp=4]"])
    names = str(raised.value).partition("near names: ")[2].split(", ")
    assert len(set(names)) == len(names) == 3


def test_an_empty_catalogue_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no suite"):
        select(load_catalogue(tmp_path), ["*"])


def test_nothing_left_says_what_there_is(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="no selected suite has the tags smok; tags there: gqa, smoke"):
        select(catalogue, ["dcp/*"], tags=["smok"])
    with pytest.raises(UsageError, match="has the tags gqa; tags there: none"):
        select(catalogue, ["dcp/deep/*"], tags=["gqa"])
    with pytest.raises(UsageError, match="has the trigger 'weekly'; triggers there: nightly, pr"):
        select(catalogue, ["dcp/*"], trigger="weekly")
    with pytest.raises(UsageError, match="no pattern"):
        select(catalogue, [])


@settings(max_examples=25, deadline=None)
@given(st.permutations(["dcp/a*", "kernels/*", "*c", "dcp/deep/b"]), st.permutations(sorted(TAGS)))
def test_no_order_changes_the_answer(catalogue: Catalogue, patterns: list[str], order: list[str]) -> None:
    by_name = {suite.name: suite for suite in catalogue.suites}
    shuffled = Catalogue(root=catalogue.root, suites=tuple(by_name[name] for name in order))
    assert select(shuffled, patterns) == select(catalogue, ["dcp/a*", "kernels/*", "*c", "dcp/deep/b"])
