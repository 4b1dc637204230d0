"""Which files a scan reads, and which of them can hold a read at all."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from harness.errors import UsageError
from harness.ratchet.rules import Rules


@dataclass(frozen=True, slots=True)
class Tree:
    """What is scanned: files below `root`, named relative to it. `whole` unless one file was asked for."""

    root: Path
    files: tuple[str, ...]
    whole: bool


def find_tree(path: Path, rules: Rules) -> Tree:
    """The Python files of `path`. Raises UsageError where there are none."""
    if path.is_file() and path.suffix == ".py":
        return Tree(path.parent, (path.name,), whole=False)
    if not path.is_dir():
        raise UsageError(f"{path} is neither a folder nor a Python file")
    root = next((path / each for each in rules.roots if (path / each).is_dir()), path)
    files = tuple(sorted(_walk(root, rules.exclude)))
    if not files:
        raise UsageError(f"{root} holds no Python file that the rules do not exclude")
    return Tree(root, files, whole=True)


def _walk(root: Path, exclude: tuple[str, ...]) -> list[str]:
    """Symbolic links are not followed: what they lead to is scanned where it is, or is not the engine's."""
    found = []
    for folder, folders, files in os.walk(root, onerror=_refuse, followlinks=False):
        below = Path(folder).relative_to(root).as_posix()
        prefix = "" if below == "." else f"{below}/"
        folders[:] = [name for name in folders if not _excluded(prefix + name, exclude)]
        found += [
            prefix + name
            for name in files
            if name.endswith(".py")
            and not _excluded(prefix + name, exclude)
            and not Path(folder, name).is_symlink()
        ]
    return found


def _refuse(error: OSError) -> None:
    """A folder that is left out would leave the count with fewer reads than there are."""
    raise UsageError(f"the folder {error.filename} cannot be read: {error.strerror}")


def _excluded(path: str, patterns: tuple[str, ...]) -> bool:
    """A pattern with a slash speaks of the path, one without of any name on it."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path if "/" in pattern else name, pattern.rstrip("/")) for pattern in patterns)
