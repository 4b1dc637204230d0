"""`run --json` and `show --json`: the contract in docs/verdicts.md, as strict JSON."""

from __future__ import annotations

import json
from pathlib import Path

from harness.report.files import write_text
from harness.verdict import RunRecord, to_json


def render_json(run: RunRecord) -> str:
    """The run as one JSON document; never NaN or an infinity, null instead."""
    return json.dumps(to_json(run), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(run: RunRecord, path: Path) -> None:
    """Writes the document to `path`. Raises `ReportError` when it cannot be written."""
    write_text(path, render_json(run))
