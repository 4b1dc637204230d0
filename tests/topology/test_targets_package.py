"""What the adapters to SGLang share, against stand-in packages: which release it is, its names for our values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InjectionError
from harness.topology import ParallelConfig, ParallelState
from harness.topology.targets.detect import Generation, SglangTarget, detect
from harness.topology.targets.group import PackageGroup
from harness.topology.targets.values import config_values, dcp_values, group_values

MISSING = (
    "target sglang: the package is not importable here; build an environment with 'make sglang VERSION=0.5.18' and run"
    " in it with '--target sglang'"
)
WRAPPER = "srt/distributed/parallel_state_wrapper.py"
CONTEXT = "srt/runtime_context.py"


@pytest.fixture
def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes a package of that name importable, of these files and the `__init__.py` files above them."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(files: dict[str, str]) -> None:
        for name, source in files.items():
            path = tmp_path / "sglang" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        for folder in (tmp_path / "sglang").rglob("*"):
            (folder.parent / "__init__.py").touch()

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


def release(version: str, *, live: bool, published: bool) -> dict[str, str]:
    files = {"version.py": f"__version__ = {version!r}", "srt/distributed/other.py": ""}
    files[CONTEXT] = "class SpawnRanks: ..." if published else ""
    return files | ({WRAPPER: ""} if live else {})


def refusal() -> str:
    with pytest.raises(InjectionError) as caught:
        detect()
    return str(caught.value)


def test_where_there_is_no_package_one_line_says_what_to_do() -> None:
    assert refusal() == MISSING


def test_a_mere_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `suites/sglang` is where `suites` is on the path."""
    (tmp_path / "sglang").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert refusal() == MISSING


@pytest.mark.parametrize(
    ("live", "published", "generation"),
    [(True, False, "live"), (False, True, "published"), (True, True, "live")],
)
def test_the_generation_is_found_by_what_the_package_has(
    make_package: Callable[..., None], live: bool, published: bool, generation: str
) -> None:
    make_package(release("0.5.99", live=live, published=published))
    found = detect()
    assert found == SglangTarget("0.5.99", Generation(generation))
    assert str(found) == "sglang 0.5.99"


def test_a_package_with_neither_interface_is_refused(make_package: Callable[..., None]) -> None:
    make_package(release("0.4.1", live=False, published=False))
    assert refusal() == (
        "sglang 0.4.1 has neither a ParallelState nor published ranks: too old, or no adapter for it yet"
    )


CONFIG = ParallelConfig(
    tp_size=96,
    pp_size=2,
    dp_size=2,
    attn_cp_size=3,
    dcp_size=4,
    ep_size=6,
    moe_dp_size=2,
    enable_dp_attention=True,
)
STATE = ParallelState.from_config(CONFIG, tp_rank=93, pp_rank=1)


def test_launch_arguments_have_the_packages_names() -> None:
    assert config_values(CONFIG) == {
        "tp_size": 96,
        "pp_size": 2,
        "dp_size": 2,
        "attn_cp_size": 3,
        "dcp_size": 4,
        "ep_size": 6,
        "moe_dp_size": 2,
        "enable_dp_attention": True,
    }


def test_groups_have_the_packages_names() -> None:
    """Rank 93 of 96: the last of 2 slices of 3 of 16, and of 2 of 6 of 8."""
    values = group_values(STATE)
    assert {type(value) for value in values.values()} == {int}
    assert values == {
        "tp_size": 96,
        "tp_rank": 93,
        "pp_size": 2,
        "pp_rank": 1,
        "attn_tp_size": 16,
        "attn_tp_rank": 13,
        "attn_cp_size": 3,
        "attn_cp_rank": 2,
        "attn_dp_size": 2,
        "attn_dp_rank": 1,
        "moe_ep_size": 6,
        "moe_ep_rank": 5,
        "moe_dp_size": 2,
        "moe_dp_rank": 1,
        "moe_tp_size": 8,
        "moe_tp_rank": 5,
    }


@pytest.mark.parametrize("ep", [8, 16])
def test_a_group_of_experts_has_at_least_one_rank(ep: int) -> None:
    values = group_values(ParallelState.trivial(tp_size=8, tp_rank=5, moe_ep_size=ep))
    assert (values["moe_tp_size"], values["moe_tp_rank"]) == (1, 0)


def test_dcp_that_is_on_has_all_its_names() -> None:
    group = object()
    assert dcp_values(STATE, group) == {
        "dcp_enabled": True,
        "attn_dcp_size": 4,
        "attn_dcp_rank": 1,
        "dcp_size": 4,
        "dcp_rank": 1,
        "dcp_group": group,
    }
    two = replace(STATE, attn_dcp_size=2)
    assert (dcp_values(two, group)["dcp_enabled"], dcp_values(two, group)["dcp_size"]) == (True, 2)


def test_dcp_that_is_off_has_only_the_names_that_answer_without_a_group() -> None:
    off: dict[str, Any] = {"dcp_enabled": False, "attn_dcp_size": 1, "attn_dcp_rank": 0}
    assert dcp_values(STATE.for_draft(), object()) == off


def test_the_group_knows_its_ranks_and_nothing_else() -> None:
    group = PackageGroup((4, 5, 6, 7), rank_in_group=2)
    assert (group.rank, group.rank_in_group, group.world_size) == (6, 2, 4)
    assert (len(group), list(group)) == (4, [4, 5, 6, 7])
    with pytest.raises(InjectionError) as caught:
        group.all_reduce([1])
    assert str(caught.value) == (
        "dcp_group.all_reduce: inject() fakes topology, not communication between ranks"
    )
