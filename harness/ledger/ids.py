"""Names of runs: `20261129-145200-ab12`, UTC, sortable by time and unique among concurrent runs.

The ledger's primary key proves uniqueness: `Ledger.start_run` draws again on the rare clash.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

# What a user may write in place of a run id.
LATEST = "latest"


def new_run_id(now: datetime) -> str:
    """A name for a run that starts at `now` (aware); the suffix tells runs of one second apart."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
