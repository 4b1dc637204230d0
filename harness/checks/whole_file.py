"""Writing a file whole or not at all, whoever else reads or writes it now."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write UTF-8 under a temporary name beside `path`, then rename it; makes missing folders. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
