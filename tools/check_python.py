"""Refuse an interpreter that is too old, in words; runs under any Python 3."""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(
        f"harness needs Python 3.11 or newer, {sys.executable} is {found}: try make run PYTHON=python3.12"
    )
