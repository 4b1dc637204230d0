"""Two runs side by side: what moved, what should have and did not, and what could not be compared."""

from __future__ import annotations

import pytest
from reads_helpers import figures

from harness.reads.compare import compare
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
    found = compare(before, after)
    assert found.headline == (
        "2 of 3 rows changed their source from 0.5.17 to 0.5.18: exactly the rows of #33925 and #34133"
    )
    first = found.moved[0]
    assert (first.row, first.changes) == ("a", (33925,))
    assert first.before == "seed: 8 of seed 8, ps 4, live 2, copy 16 (srt/pool.py:7)"
    assert first.after == "live: 2 of seed 8, ps 4, live 2, copy 16 (srt/pool.py:9)"


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
    found = compare(before, after)
    assert "exactly" not in found.headline
    assert getattr(found, field) == ("odd",)


def test_rows_that_one_run_did_not_judge_are_told_with_the_reason() -> None:
    before = {"a": figures("seed", changes=(1,)), "error": {}, "old": figures("seed")}
    after = {"a": figures("live", changes=(1,)), "error": figures("seed"), "new": {}}
    found = compare(before, after)
    assert found.left_out == {
        "error": "an error in the first run",
        "old": "not in the second run",
        "new": "not in the first run",
    }
    assert (found.compared, "exactly" in found.headline) == (1, False)


def test_nothing_moved_is_no_exact_match() -> None:
    rows = {"a": figures("live")}
    assert compare(rows, rows).headline == "0 of 1 rows changed their source from 0.5.17 to 0.5.17"


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
