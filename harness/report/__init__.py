"""Reports of a run: live views, the summary, JSON, JUnit. Readers of records: none decides anything."""

from harness.report.files import ReportError, check_writable
from harness.report.json import render_json, write_json
from harness.report.junit import render_junit, write_junit
from harness.report.plain_view import PlainView
from harness.report.questions import COLUMNS as QUESTION_COLUMNS
from harness.report.questions import QuestionTable, question_tables, questions_json
from harness.report.rich_view import RichView
from harness.report.summary import counts, print_job, print_summary, render_job, render_summary
from harness.report.terminal import choose_view
from harness.report.wording import reproduce

__all__ = [
    "QUESTION_COLUMNS",
    "PlainView",
    "QuestionTable",
    "ReportError",
    "RichView",
    "check_writable",
    "choose_view",
    "counts",
    "print_job",
    "print_summary",
    "question_tables",
    "questions_json",
    "render_job",
    "render_json",
    "render_junit",
    "render_summary",
    "reproduce",
    "write_json",
    "write_junit",
]
