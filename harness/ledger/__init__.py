"""The ledger of all runs (SQLite through SQLAlchemy). The job process never imports it."""

from harness.ledger.errors import LedgerError, UnknownRunError
from harness.ledger.ids import LATEST, new_run_id
from harness.ledger.loading import RunState
from harness.ledger.owner import Owner
from harness.ledger.questions import AttemptQuestions
from harness.ledger.store import FILE_NAME, Ledger, RunSummary

__all__ = [
    "FILE_NAME",
    "LATEST",
    "AttemptQuestions",
    "Ledger",
    "LedgerError",
    "Owner",
    "RunState",
    "RunSummary",
    "UnknownRunError",
    "new_run_id",
]
