"""The three vocabularies of a result: what a check, an attempt and a job in a run can come to.

Pure names; `classify` turns checks and the end of a process into an attempt outcome, `judge` turns
attempts into a verdict. The values are the words of the JSON contract and of the ledger, so none is
ever renamed.
"""

from __future__ import annotations

from enum import StrEnum


class CheckOutcome(StrEnum):
    """What one named assertion came to."""

    PASSED = "passed"
    FAILED = "failed"
    UNDERPOWERED = "underpowered"  # n cannot find the declared effect
    UNPROVEN = "unproven"  # the engine offers no proof
    ERROR = "error"
    SKIPPED = "skipped"


class AttemptOutcome(StrEnum):
    """What one execution of a job came to."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INCONCLUSIVE = "inconclusive"
    INFRA = "infra"
    INTERRUPTED = "interrupted"


class Verdict(StrEnum):
    """What a job came to in a run."""

    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    FLAKY = "flaky"
    INCONCLUSIVE = "inconclusive"
    INFRA = "infra"
    NOT_RUN = "not_run"
    SKIPPED = "skipped"


# Outcomes of a check that are findings against the code under test.
RED_CHECKS = frozenset({CheckOutcome.FAILED, CheckOutcome.ERROR})

# Outcomes of a check that say nothing either way.
OPEN_CHECKS = frozenset({CheckOutcome.UNDERPOWERED, CheckOutcome.UNPROVEN})
