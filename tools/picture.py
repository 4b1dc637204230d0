"""Draw the summary of a finished run as SVG: `python tools/picture.py latest docs/run.svg`.

Reads the ledger under `reports/`; the picture in the README is made by this and nothing else.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from harness.ledger import Ledger
from harness.report import render_summary

# Wide enough for the longest line of a passed suite without wrapping in the README's column.
COLUMNS = 124


def main(run: str, target: str) -> None:
    with Ledger.open(Path("reports/ledger.db"), create=False) as ledger:
        record = ledger.load_run(run)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(
        "$ harness " + " ".join(repr(word) if "*" in word else word for word in record.argv), style="bold"
    )
    console.print(render_summary(record, width=COLUMNS), highlight=False)
    svg = console.export_svg(title="harness run")
    # rich points at web fonts, which a README's image may not load: any monospace font will do.
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    # Some renderers trim the blanks that indent a line unless told to keep them.
    Path(target).write_text(svg.replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
