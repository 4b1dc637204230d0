"""Read a source tree of an engine: where its package is, and which code it is.

`--source PATH` may point at a checkout, at its `python` folder, at any folder that holds the package, or at the
package itself; all four give the same package on PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

from harness.environments.model import SGLANG, EngineSource
from harness.errors import UsageError

# The package is known by the part that suites test; a folder that happens to be called `sglang` is not enough.
PROOF_OF_PACKAGE = "srt"
# A status over a large checkout on a cold disk.
GIT_SECONDS = 30


def read_source(path: Path) -> EngineSource:
    """What lies at that path. Raises UsageError where no package of the engine is there."""
    given = path.expanduser().absolute()
    package_root = _package_root(given)
    package = package_root / SGLANG
    return EngineSource(
        root=package_root.parent if package_root.name == "python" else package_root,
        package_root=package_root,
        version=_version(package_root),
        commit=_commit(package),
        digest=digest_of(package / PROOF_OF_PACKAGE),
    )


def _package_root(given: Path) -> Path:
    for folder in (given / "python", given, given.parent if given.name == SGLANG else given):
        if (folder / SGLANG / PROOF_OF_PACKAGE).is_dir():
            return folder.resolve()
    found = "is no folder" if not given.is_dir() else "holds no package of SGLang"
    raise UsageError(
        f"source {given} {found}; allowed: a checkout (with python/sglang), its `python` folder, "
        "a folder that holds `sglang`, or `sglang` itself"
    )


def _version(package_root: Path) -> str | None:
    """From the file that a release writes; a bare checkout has no version of its own."""
    try:
        text = (package_root / SGLANG / "_version.py").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"^__version__\s*=[^'\"\n]*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _commit(package: Path) -> str | None:
    """The commit of the work tree that tracks the package. A repository which merely lies around it (that of
    harness, say, with the source in an ignored folder) says nothing about the code."""
    try:
        _git(package, "ls-files", "--error-unmatch", "--", "__init__.py")
        commit = _git(package, "rev-parse", "HEAD")
        changed = _git(package, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+dirty" if changed else "")


def _git(folder: Path, *args: str) -> str:
    command = ["git", "-C", str(folder), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS)
    return done.stdout.strip()


def digest_of(folder: Path) -> str:
    """sha256 over paths and contents of the Python files, in one order everywhere; harness names itself by it too."""
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        content = file.read_bytes()
        # lengths go in, so that no file can pass for the end of another
        total.update(f"{file.relative_to(folder).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()
