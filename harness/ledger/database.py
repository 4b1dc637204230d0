"""Opening the SQLite file so that several processes can write and no acknowledged row is lost.

Phases: make the folder, set the file up under a file lock (make its tables, or bring those of an older
harness up to date), check its schema number. WAL with
synchronous=FULL keeps a row through a power cut once its transaction is acknowledged; BEGIN IMMEDIATE takes
the write lock first, so that a transaction never fails half-way for want of it; measured at about a hundred
jobs per second, a thousand times what a pool of GPUs needs. Local disks only: WAL needs shared memory.
Failure rule: anything wrong with the file becomes a `LedgerError` that says what to do.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, select
from sqlalchemy.orm import Session

from harness.ledger.errors import NOT_OURS, LedgerError, explained
from harness.ledger.schema import SCHEMA_VERSION, Base, MetaRow, QuestionRow
from harness.verdict import without_nan

# Other writers hold the lock for milliseconds; saturated, SQLite's unfair wait was measured at up to 6 s.
BUSY_TIMEOUT_MS = 30_000

_VERSION_KEY = "schema_version"


class Database:
    """One open ledger file; hands out read and write transactions. Safe for use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = _make_engine(path)

    def set_up(self) -> None:
        """Creates the tables or brings them up to date, and refuses a ledger of a newer harness."""
        with explained(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _file_lock(self.path.with_name(f"{self.path.name}.lock")):
                with self.write() as session:
                    _migrate(session, self.path)

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction that holds the write lock; acknowledged, and on disk, when the block ends."""
        with explained(self.path), Session(self._engine) as session, session.begin():
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent snapshot; never waits for a writer."""
        engine = self._engine.execution_options(read_only=True)
        with explained(self.path), Session(engine) as session, session.begin():
            yield session

    def close(self) -> None:
        """Closes every connection; SQLite folds the WAL into the file when the last one goes."""
        self._engine.dispose()


def _make_engine(path: Path) -> Engine:
    # Not written out as a URL: a path may hold `?` and `%`.
    engine = create_engine(URL.create("sqlite", database=str(path)), json_serializer=_dump_json)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get("read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _dump_json(value: object) -> str:
    return json.dumps(without_nan(value), allow_nan=False)  # ASCII: half surrogate pairs have no UTF-8


def _migrate(session: Session, path: Path) -> None:
    """Make the tables, or add what they lack since an older version, or refuse a newer one."""
    connection = session.connection()
    if not inspect(connection).has_table(MetaRow.__tablename__):
        Base.metadata.create_all(connection)
        session.add(MetaRow(key=_VERSION_KEY, value=str(SCHEMA_VERSION)))
        return
    meta = session.scalars(select(MetaRow).where(MetaRow.key == _VERSION_KEY)).one_or_none()
    found = int(meta.value) if meta is not None and meta.value.isdecimal() else 0
    if meta is None or found < 1:
        raise LedgerError(f"ledger {path}: {': '.join(NOT_OURS)}")
    if found > SCHEMA_VERSION:
        raise LedgerError(
            f"ledger {path} has schema version {found}, this harness knows versions up to {SCHEMA_VERSION}: "
            "use the newer harness that wrote it, or another reports folder"
        )
    for version in range(found, SCHEMA_VERSION):
        _STEPS[version](connection)
    if found < SCHEMA_VERSION:
        meta.value = str(SCHEMA_VERSION)


def _add_questions(connection: Connection) -> None:
    """1 → 2: a table for the questions of scored checks; the rows of all others stay as they are."""
    Base.metadata.create_all(connection, tables=[Base.metadata.tables[QuestionRow.__tablename__]])


# From each older version to the next; versions begin with 1.
_STEPS: Mapping[int, Callable[[Connection], None]] = {1: _add_questions}


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Two first runs at once must not both switch the file to WAL: SQLite's busy wait does not cover that."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
