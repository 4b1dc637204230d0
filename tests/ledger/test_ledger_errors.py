"""Everything that can be wrong with the file, provoked for real: one clear error that says what to do."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from harness.errors import HarnessError, UsageError
from harness.ledger import Ledger, LedgerError
from harness.ledger.database import Database
from harness.ledger.errors import explained
from harness.ledger.schema import SCHEMA_VERSION


def with_pragma(ledger: Ledger, pragma: str) -> None:
    """Every later connection of this ledger starts with `pragma`."""
    engine = ledger._database._engine
    engine.dispose()
    event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))


def test_the_pragmas_that_durability_needs_are_in_force(ledger):
    with ledger._database.read() as session:
        connection = session.connection()
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 30_000, "foreign_keys": 1}


def test_a_newer_ledger_is_refused_with_both_versions(tmp_path):
    Ledger.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("UPDATE meta SET value = '7' WHERE key = 'schema_version'")
    with pytest.raises(
        LedgerError, match=f"schema version 7, this harness knows versions up to {SCHEMA_VERSION}"
    ):
        Ledger.open(tmp_path)


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"not a database, " * 400)
    with pytest.raises(LedgerError, match=r"it is not a ledger.*move it away"):
        Ledger.open(tmp_path)


def test_a_damaged_database(tmp_path):
    with Ledger.open(tmp_path) as ledger:
        ledger.start_run(harness_sha="abc")
    file = tmp_path / "ledger.db"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(LedgerError, match=r"corrupt.*move it away"):
        Ledger.open(tmp_path).load_run()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta",
        "UPDATE meta SET value = 'new'",
        "DROP TABLE checks",
        "ALTER TABLE jobs DROP COLUMN variant",
        "ALTER TABLE runs RENAME COLUMN argv TO arguments",
    ],
)
def test_tables_of_something_else(tmp_path, statement):
    Ledger.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute(statement)
    with pytest.raises(LedgerError, match="its tables are not those of this harness: move it away") as caught:
        with Ledger.open(tmp_path) as ledger:
            run = ledger.start_run(harness_sha="abc")
            ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
            ledger.start_attempt(run, "a@cpu", n=1)
            ledger.load_run(run)
    assert caught.value.exit_code == 3  # nothing was judged


@pytest.mark.parametrize("value", [b"\xff\xfe", b"{"])
@pytest.mark.parametrize("column", ["argv", "harness_sha"])
def test_a_text_that_was_damaged_in_the_file(tmp_path, column, value):
    """SQLite itself does not look into texts, so such a ledger opens and can be queried."""
    with Ledger.open(tmp_path) as ledger:
        ledger.start_run(harness_sha="abc")
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute(f"UPDATE runs SET {column} = CAST(? AS TEXT)", [value])
    with Ledger.open(tmp_path) as ledger:
        if (column, value) == ("harness_sha", b"{"):
            assert ledger.load_run().harness_sha == "{"
        else:
            with pytest.raises(LedgerError, match="it is corrupt: move it away"):
                ledger.load_run()


def test_a_full_disk(ledger):
    run = ledger.start_run(harness_sha="abc")
    with_pragma(ledger, "max_page_count=1")
    with pytest.raises(LedgerError, match=r"the disk is full: free some space"):
        for n in range(2000):
            ledger.add_job(run, f"job{n:0>500}", suite="a", profile="cpu")


def test_a_disk_too_full_for_the_index_of_the_log(ledger, monkeypatch):
    """On a full file system it is this index, a memory-mapped file, that cannot grow; SQLite tells it so."""
    usage = shutil.disk_usage("/")
    error = DBAPIError("INSERT", None, sqlite3.OperationalError("disk I/O error"))
    for free, advice in ((0, "the disk is full: free some space"), (usage.total, "look at the disk")):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, free=free: usage._replace(free=free))
        with pytest.raises(LedgerError, match=advice), explained(ledger._database.path):
            raise error


def test_a_read_only_ledger(ledger):
    with_pragma(ledger, "query_only=1")
    with pytest.raises(LedgerError, match=r"it is read-only.*make its folder writable"):
        ledger.start_run(harness_sha="abc")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LedgerError, match="make its folder writable, or choose another"):
        Ledger.open(tmp_path / "file" / "reports")


def test_a_path_that_cannot_be_opened_as_a_file(tmp_path):
    (tmp_path / "ledger.db").mkdir()
    with pytest.raises(LedgerError, match="cannot be opened"):
        Database(tmp_path / "ledger.db").set_up()


def test_a_ledger_that_is_not_there_is_a_usage_error_and_is_not_made(tmp_path):
    with pytest.raises(UsageError, match="nothing has been run here yet"):
        Ledger.open(tmp_path, create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_harness_itself_is_not_disguised(ledger):
    run = ledger.start_run(harness_sha="abc")
    ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
    with pytest.raises(Exception, match="UNIQUE") as caught:
        ledger.add_job(run, "a@cpu", suite="a", profile="cpu")
    assert not isinstance(caught.value, HarnessError)


def test_the_reports_folder_and_the_file_name_the_same_ledger(tmp_path: Path):
    with Ledger.open(tmp_path / "reports") as ledger:
        run = ledger.start_run(harness_sha="abc")
    with Ledger.open(tmp_path / "reports" / "ledger.db", create=False) as ledger:
        assert ledger.load_run().run == run
