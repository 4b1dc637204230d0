"""Across two releases of a small engine the scan shows what moved, and the ratchet holds what was won."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from planted import write_tree
from two_releases import AFTER, BEFORE, RULES

from harness.errors import UsageError
from harness.ratchet import (
    Baseline,
    Rules,
    Scan,
    compare,
    judge,
    load_baseline,
    load_rules,
    save_baseline,
    scan,
    updated,
)


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    write_tree(tmp_path, {"rules.yaml": RULES})
    return load_rules(tmp_path / "rules.yaml")


@pytest.fixture
def before(tmp_path: Path, rules: Rules) -> Scan:
    return scan(write_tree(tmp_path / "before", BEFORE), rules)


@pytest.fixture
def after(tmp_path: Path, rules: Rules) -> Scan:
    return scan(write_tree(tmp_path / "after", AFTER), rules)


def numbers(found: Scan) -> dict[str, int]:
    return dict(Counter(f"{site.axis} {site.category.told}" for site in found.sites))


def test_direct_reads_go_down_and_copies_and_defensive_reads_disappear(before: Scan, after: Scan) -> None:
    assert numbers(before) == {"dcp direct": 3, "dcp defensive": 2, "dcp copied": 1, "tp direct": 1}
    assert numbers(after) == {"dcp direct": 1, "tp direct": 1}


def test_fewer_pass_and_more_fail_with_the_new_sites(before: Scan, after: Scan, rules: Rules) -> None:
    down = judge(after, rules, Baseline.of(before.sites))
    up = judge(before, rules, Baseline.of(after.sites))
    assert (down.exit_code, up.exit_code) == (0, 1)
    assert [str(change) for change in down.shrank] == [
        "dcp copied 1 -> 0",
        "dcp defensive 2 -> 0",
        "dcp direct 3 -> 1",
    ]
    new = {(site.file, site.expression) for change in up.grew for site in change.new}
    assert new == {
        ("engine/runner.py", "server_args.dcp_size"),
        ("engine/runner.py", "self.server_args.dcp_size"),
        ("engine/checker.py", "getattr(self.server_args, 'dcp_size', 1)"),
        ("engine/batch.py", "getattr(model_runner, 'dcp_size', 1)"),
        ("engine/allocation.py", "get_server_args().dcp_size"),
    }


def test_a_category_does_not_pay_for_another(tmp_path: Path, rules: Rules) -> None:
    direct = scan(
        write_tree(tmp_path / "a", {"a.py": "def f(server_args): return server_args.dcp_size"}), rules
    )
    hidden = scan(write_tree(tmp_path / "b", {"a.py": "def f(a: ServerArgs): return a.dcp_size"}), rules)
    assert judge(hidden, rules, Baseline.of(direct.sites)).exit_code == 1


def test_lines_may_move_without_a_change(tmp_path: Path, rules: Rules, before: Scan) -> None:
    moved = {name: "# a line\n\n" + text for name, text in BEFORE.items()}
    assert compare(Baseline.of(before.sites), scan(write_tree(tmp_path / "moved", moved), rules).sites) == []


def test_a_site_in_another_file_is_told_as_moved_and_passes(
    tmp_path: Path, rules: Rules, before: Scan
) -> None:
    files = dict(BEFORE)
    files["engine/pages.py"] = files.pop("engine/allocation.py")
    moved = judge(scan(write_tree(tmp_path / "moved", files), rules), rules, Baseline.of(before.sites))
    (change,) = moved.changes
    assert moved.exit_code == 0
    assert [site.file for site in change.new] == ["engine/pages.py"]
    assert [file for file, _ in change.gone] == ["engine/allocation.py"]


def test_one_more_of_the_same_in_one_function_is_found(tmp_path: Path, rules: Rules) -> None:
    one = "def f(server_args):\n    g(server_args.dcp_size)\n"
    old = scan(write_tree(tmp_path / "a", {"a.py": one}), rules)
    new = scan(write_tree(tmp_path / "b", {"a.py": one + "    g(server_args.dcp_size)\n"}), rules)
    (change,) = judge(new, rules, Baseline.of(old.sites)).grew
    assert [site.line for site in change.new] == [3]


def test_an_update_goes_down_only(before: Scan, after: Scan, rules: Rules) -> None:
    low = Baseline.of(after.sites)
    with pytest.raises(UsageError, match=r"dcp copied 0 -> 1.*--allow-increase"):
        updated(judge(before, rules, low), low, allow_increase="")
    with pytest.raises(UsageError, match="--allow-increase"):
        updated(judge(before, rules, low), low, allow_increase="  ")
    let = updated(judge(before, rules, low), low, allow_increase="reverted for a release")
    assert let.cells == Baseline.of(before.sites).cells
    assert [each.reason for each in let.increases] == ["reverted for a release"]
    down = updated(judge(after, rules, let), let, allow_increase="")
    assert down.cells == low.cells
    assert down.increases == let.increases


def test_an_update_forgets_nothing_that_could_not_be_read(tmp_path: Path, rules: Rules) -> None:
    broken = scan(
        write_tree(tmp_path / "a", {"a.py": "def f(server_args: return server_args.dcp_size"}), rules
    )
    with pytest.raises(UsageError, match=r"a\.py"):
        updated(judge(broken, rules, None), None, allow_increase="")


def test_a_baseline_comes_back_as_it_was_written(
    tmp_path: Path, before: Scan, after: Scan, rules: Rules
) -> None:
    low = Baseline.of(after.sites)
    let = updated(judge(before, rules, low), low, allow_increase='because: "of", #this')
    save_baseline(tmp_path / "new" / "baseline.yaml", let)
    assert load_baseline(tmp_path / "new" / "baseline.yaml") == let
