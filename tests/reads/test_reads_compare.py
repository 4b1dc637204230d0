"""Two runs side by side: what moved, what should have and did not, and what could not be compared."""

from __future__ import annotations

from typing import Any

import pytest
from reads_helpers import figures

from harness.reads.compare import Comparison, compare
from harness.reads.words import in_words


def test_the_rows_of_the_changes_moved_and_no_other() -> None:
    before = {
        "a": figures("seed", changes=(33925,)),
        "b": figures("live"),
        "c": figures("seed", changes=(34133,)),
    }
    after = {
        "a": figures("live", changes=(33925,), version="0.5.18", where="srt/pool.py:9"),
        "b": figures("live", version="0.5.18"),
        "c": figures("ps", changes=(34133,), version="0.5.18"),
    }
    found = compare(before, after, names=("0.5.17", "0.5.18"))
    assert found.headline == (
        "2 of 3 rows changed their source from 0.5.17 to 0.5.18: exactly the rows of #33925 and #34133"
    )
    first = found.moved[0]
    assert (first.row, first.changes) == ("a", (33925,))
    assert (first.before, first.after) == ("seed: 8", "live: 2")
    assert first.seen == (
        "seed: 8 of seed 8, ps 4, live 2, copy 16 (srt/pool.py:7)",
        "live: 2 of seed 8, ps 4, live 2, copy 16 (srt/pool.py:9)",
    )


def test_a_consumer_that_appears_has_not_changed_its_source() -> None:
    gone = figures("absent", absent="pool has no size", numbers=[])
    both = {"a": (figures("seed", changes=(1,)), figures("live", changes=(1,)))}
    appears = {"new": (gone | {"changes": [1]}, figures("live", changes=(1,)))}
    vanishes = {"old": (figures("live", changes=(1,)), gone)}
    nowhere = {"never": (gone, gone)}

    def run(rows: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> Comparison:
        before, after = ({name: pair[which] for name, pair in rows.items()} for which in (0, 1))
        return compare(before, after, names=("0.5.17", "0.5.18"))

    found = run(both | appears | nowhere)
    assert found.headline == (
        "1 of 1 rows changed their source from 0.5.17 to 0.5.18, 1 appeared: exactly the rows of #1"
    )
    assert [each.row for each in found.appeared] == ["new"]
    found = run(both | appears | vanishes)
    assert "1 of 1 rows" in found.headline
    assert "1 appeared, 1 vanished: exactly" in found.headline
    assert [each.row for each in found.differing] == ["a", "new", "old"]
    # One that no change names spoils it.
    found = run(both | {"new": (gone, figures("live"))})
    assert (found.unexplained, "exactly" in found.headline) == (("new",), False)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (("seed", "live", ()), "unexplained"),
        (("seed", "seed", (33925,)), "stayed"),
    ],
)
def test_one_row_too_many_or_too_few_is_told(row: tuple[str, str, tuple[int, ...]], field: str) -> None:
    old, new, changes = row
    before = {"a": figures("seed", changes=(1,)), "odd": figures(old, changes=changes)}
    after = {"a": figures("live", changes=(1,)), "odd": figures(new, changes=changes)}
    found = compare(before, after, names=("0.5.17", "0.5.18"))
    assert "exactly" not in found.headline
    assert getattr(found, field) == ("odd",)


def test_rows_that_one_run_did_not_judge_are_told_with_the_reason() -> None:
    before = {"a": figures("seed", changes=(1,)), "error": {}, "old": figures("seed")}
    after = {"a": figures("live", changes=(1,)), "error": figures("seed"), "new": {}}
    found = compare(before, after, names=("0.5.17", "0.5.18"))
    assert found.left_out == {
        "error": "an error in the first run",
        "old": "not in the second run",
        "new": "not in the first run",
    }
    assert (found.compared, "exactly" in found.headline) == (1, False)


def test_nothing_moved_is_no_exact_match() -> None:
    rows = {"a": figures("live")}
    assert compare(rows, rows, names=("one", "one")).headline == (
        "0 of 1 rows changed their source from one to one"
    )


def test_an_unclear_row_is_told_by_every_drive() -> None:
    drives = [
        {"tp_rank": 7, "seed": 8, "live": 2, "used": 2},
        {"tp_rank": 6, "seed": 1, "live": 4, "used": None},
        {"tp_rank": 5, "seed": 4, "live": 1, "used": 3},
    ]
    told = in_words(figures("unclear", numbers=drives))
    assert told == "unclear: 2, nothing, 3 as tp_rank 7, 6, 5 of seed 8, 1, 4; live 2, 4, 1"


@pytest.mark.parametrize(("kind", "off", "used"), [("scale", 1, 1), ("rank", "off", 0)])
def test_a_guarded_read_is_told_by_the_drive_in_which_the_guard_closes(
    kind: str, off: Any, used: int
) -> None:
    drives = [
        {"tp_rank": 7, "seed": 8, "live": 3, "used": 3},
        {"tp_rank": 5, "seed": 8, "live": off, "used": used},
        {"tp_rank": 3, "seed": off, "live": 2, "used": used},
    ]
    told = in_words(figures("live gated by seed", kind=kind, numbers=drives))
    assert told == f"live gated by seed: {used} of seed {off}, live 2"


def test_a_gate_is_told_by_the_drive_that_closes_it() -> None:
    drive = {"seed": 8, "ps": 4, "live": 2, "copy": 16}
    drives = [{**drive, name: 1, "used": name != "live"} for name in drive]
    told = in_words(figures("live", kind="gate", numbers=drives))
    assert told == "live: 1, so off, of seed 8, ps 4, live 1, copy 16"


def test_a_choice_of_backend_is_told_by_the_name_that_was_read() -> None:
    drives = [
        {"seed": "fi_a2a", "live": "ag_rs", "used": False},
        {"seed": "ag_rs", "live": "fi_a2a", "used": True},
    ]
    told = in_words(figures("live", kind="backend", numbers=drives))
    assert told == "live: ag_rs, so off, of seed fi_a2a, live ag_rs"


def test_a_gate_that_no_source_moves_is_told_without_a_number() -> None:
    drives = [{"seed": 1, "live": 4, "used": True}, {"seed": 8, "live": 1, "used": True}]
    assert (
        in_words(figures("constant True", kind="gate", numbers=drives))
        == "constant True: on of seed 1, live 4"
    )


def test_what_is_no_number_is_told_in_words() -> None:
    assert in_words(figures("none", numbers=[{"seed": 8, "used": None}])) == "none: nothing of seed 8"
    assert in_words(figures("a, b", kind="fact")) == "a, b"
    assert in_words(figures("absent", absent="pool has no size")) == "absent: pool has no size"
    assert in_words(figures("constant 3")) == "constant 3: 3 of seed 8, ps 4, live 2, copy 16"
