"""Outcomes, records, classification and judgement. Pure: no I/O, no clock, no third-party import."""

from harness.verdict.classify import ProcessEnd, classify_attempt, finding, signal_name
from harness.verdict.events import JobTicket, LiveView
from harness.verdict.judge import INFRA_LIMIT, Judged, exit_code, judge_job, needs_retry, speaks_of_code
from harness.verdict.outcomes import OPEN_CHECKS, RED_CHECKS, AttemptOutcome, CheckOutcome, Verdict
from harness.verdict.records import (
    JSON,
    AttemptRecord,
    CheckRecord,
    JobRecord,
    RunRecord,
    to_json,
    without_nan,
)

__all__ = [
    "INFRA_LIMIT",
    "JSON",
    "OPEN_CHECKS",
    "RED_CHECKS",
    "AttemptOutcome",
    "AttemptRecord",
    "CheckOutcome",
    "CheckRecord",
    "JobRecord",
    "JobTicket",
    "Judged",
    "LiveView",
    "ProcessEnd",
    "RunRecord",
    "Verdict",
    "classify_attempt",
    "exit_code",
    "finding",
    "judge_job",
    "needs_retry",
    "signal_name",
    "speaks_of_code",
    "to_json",
    "without_nan",
]
