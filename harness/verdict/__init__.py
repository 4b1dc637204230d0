"""Outcomes, records, classification and judgement. Pure: no I/O, no clock, no third-party import."""

from harness.verdict.classify import ProcessEnd, classify_attempt, finding, findings, signal_name
from harness.verdict.events import JobTicket, LiveView
from harness.verdict.judge import (
    INFRA_LIMIT,
    Judged,
    exit_code,
    judge_job,
    needs_retry,
    nothing_ran,
    speaks_of_code,
)
from harness.verdict.outcomes import OPEN_CHECKS, RED_CHECKS, AttemptOutcome, CheckOutcome, Verdict
from harness.verdict.question_stream import FILE_NAME as QUESTIONS_FILE
from harness.verdict.question_stream import AskedQuestion, QuestionRole
from harness.verdict.question_stream import decode as decode_question
from harness.verdict.question_stream import encode as encode_questions
from harness.verdict.questions import QuestionOutcome, QuestionRecord
from harness.verdict.records import (
    JSON,
    SUBTEST_FIGURE,
    AttemptRecord,
    CheckRecord,
    JobRecord,
    RunRecord,
    is_clean_commit,
    to_json,
    without_nan,
)

__all__ = [
    "INFRA_LIMIT",
    "JSON",
    "OPEN_CHECKS",
    "QUESTIONS_FILE",
    "RED_CHECKS",
    "SUBTEST_FIGURE",
    "AskedQuestion",
    "AttemptOutcome",
    "AttemptRecord",
    "CheckOutcome",
    "CheckRecord",
    "JobRecord",
    "JobTicket",
    "Judged",
    "LiveView",
    "ProcessEnd",
    "QuestionOutcome",
    "QuestionRecord",
    "QuestionRole",
    "RunRecord",
    "Verdict",
    "classify_attempt",
    "decode_question",
    "encode_questions",
    "exit_code",
    "finding",
    "findings",
    "is_clean_commit",
    "judge_job",
    "needs_retry",
    "nothing_ran",
    "signal_name",
    "speaks_of_code",
    "to_json",
    "without_nan",
]
