"""The tables: runs → jobs → attempts → checks and questions, and the number of their shape.

Rows are written as things happen and never deleted; unfinished work has NULL where the result will be.
JSON columns hold lists and mappings (devices, matrix, figures, argv). Times are ISO 8601 with zone.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, Dialect, ForeignKey, String, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeEngine

# Grows by one with every change of the tables; a ledger with a greater number is refused.
SCHEMA_VERSION = 2


class Text(TypeDecorator[str]):
    """Any Python string. Half surrogate pairs, as which arguments and paths carry bytes that are no UTF-8, are
    stored as escapes."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.encode("utf-8", "backslashreplace").decode()


class Base(DeclarativeBase):
    """Root of the tables."""

    type_annotation_map: ClassVar[dict[type, type[TypeEngine[Any]]]] = {str: Text}


class MetaRow(Base):
    """Facts about the ledger itself: `schema_version`."""

    __tablename__ = "meta"

    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class RunRow(Base):
    """One run, and the process that owns it (see `ledger.owner`)."""

    __tablename__ = "runs"

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    run: Mapped[str] = mapped_column(unique=True)
    harness_sha: Mapped[str]
    started_at: Mapped[str]
    ended_at: Mapped[str | None]
    interrupted: Mapped[bool] = mapped_column(default=False)
    argv: Mapped[list[str]] = mapped_column(JSON)
    pid: Mapped[int]
    start_ticks: Mapped[int]
    boot_id: Mapped[str]
    jobs: Mapped[list[JobRow]] = relationship(order_by="JobRow.pk")


class JobRow(Base):
    """One job of a run; `verdict` is NULL until it is judged."""

    __tablename__ = "jobs"
    __table_args__ = (UniqueConstraint("run_seq", "id"),)

    pk: Mapped[int] = mapped_column(primary_key=True)
    run_seq: Mapped[int] = mapped_column(ForeignKey("runs.seq"), index=True)
    id: Mapped[str]
    suite: Mapped[str]
    profile: Mapped[str]
    matrix: Mapped[dict[str, Any]] = mapped_column(JSON)
    engine_sha: Mapped[str | None]
    # What the job stood for (its suite as read, faults, engine arguments); other variants are not its history.
    variant: Mapped[str] = mapped_column(default="")
    verdict: Mapped[str | None]
    reason: Mapped[str] = mapped_column(default="")
    gpu_minutes: Mapped[float] = mapped_column(default=0.0)
    seconds: Mapped[float] = mapped_column(default=0.0)
    attempts: Mapped[list[AttemptRow]] = relationship(order_by="AttemptRow.n")


class AttemptRow(Base):
    """One execution of a job; `outcome` is NULL while it runs."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("job_pk", "n"),)

    pk: Mapped[int] = mapped_column(primary_key=True)
    job_pk: Mapped[int] = mapped_column(ForeignKey("jobs.pk"), index=True)
    n: Mapped[int]
    outcome: Mapped[str | None]
    node: Mapped[str]
    devices: Mapped[list[str]] = mapped_column(JSON)
    reason: Mapped[str] = mapped_column(default="")
    seconds: Mapped[float] = mapped_column(default=0.0)
    log_path: Mapped[str | None]
    checks: Mapped[list[CheckRow]] = relationship(order_by="CheckRow.pk")


class CheckRow(Base):
    """One check of an attempt, written when it finished."""

    __tablename__ = "checks"

    pk: Mapped[int] = mapped_column(primary_key=True)
    attempt_pk: Mapped[int] = mapped_column(ForeignKey("attempts.pk"), index=True)
    name: Mapped[str]
    outcome: Mapped[str]
    message: Mapped[str]
    figures: Mapped[dict[str, Any]] = mapped_column(JSON)
    seconds: Mapped[float]


class QuestionRow(Base):
    """One question of a scored check as one engine answered it, written while the check still asks."""

    __tablename__ = "questions"

    pk: Mapped[int] = mapped_column(primary_key=True)
    attempt_pk: Mapped[int] = mapped_column(ForeignKey("attempts.pk"), index=True)
    check: Mapped[str]
    role: Mapped[str]
    question: Mapped[int]
    prompt_hash: Mapped[str]
    outcome: Mapped[str]
    expected: Mapped[str]
    answer: Mapped[str | None]
    text: Mapped[str]
    tokens: Mapped[int]
    finish_reason: Mapped[str]
    seconds: Mapped[float]
    error: Mapped[str]
