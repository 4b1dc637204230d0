"""Scans a tree: finds its files, looks at them in two processes, and drops what the rules exempt.

Phases: the files are listed, each is read and most are told by their bytes to hold nothing, the others are parsed and
walked, exemptions are matched. A file that cannot be parsed is an `Unparsed` of the scan; an exemption that matches
nothing raises SourceError at its place in the rules.
"""

from __future__ import annotations

import ast
import importlib.util
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.errors import SourceError, SourceErrors
from harness.ratchet.files import find_tree
from harness.ratchet.prefilter import Prefilter
from harness.ratchet.rules import Exemption, Place, Rules
from harness.ratchet.sites import Site, Unparsed
from harness.ratchet.statements import find_sites

# More gained nothing on a tree of 3,200 files, where reading them is half of the work.
WORKERS = 2
# A pool costs some 50 ms to start, which is what so many files take.
LEAST_FOR_POOL = 200
# Files a worker takes at a time: few enough to share large ones evenly, enough to hide the cost of asking.
CHUNK = 16
# Generated code nests deeper than Python's 1,000 calls; frames of Python code take no stack of C.
RECURSION = 20_000

# A newer syntax than that of the Python which scans is no mistake of the file.
_NO_PYTHON = f"does not parse as Python {sys.version_info.major}.{sys.version_info.minor}"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Exempted:
    """A site that is meant, and why."""

    site: Site
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan found, in the order of files and lines. `root` is the folder that sites are relative to, `idle`
    are places of exemptions that held none, beside others that did."""

    root: Path
    files: int
    parsed: int
    sites: tuple[Site, ...]
    exempted: tuple[Exempted, ...]
    idle: tuple[Place, ...]
    unparsed: tuple[Unparsed, ...]


@dataclass(frozen=True, slots=True)
class _Looked:
    """What one file held. `texts` are the lines that its sites stand on."""

    parsed: bool = False
    sites: tuple[Site, ...] = ()
    texts: tuple[str, ...] = ()
    unparsed: Unparsed | None = None


def scan(path: Path, rules: Rules, *, progress: Progress = lambda done, total: None) -> Scan:
    """Scan the tree or file `path`. Raises UsageError for no such thing, SourceError for an idle exemption."""
    tree = find_tree(path, rules)
    looked = []
    for each in _look_at_all(tree.root, tree.files, rules):
        looked.append(each)
        progress(len(looked), len(tree.files))
    found = [pair for each in looked for pair in zip(each.sites, each.texts, strict=True)]
    sites, exempted, idle = _apply_exemptions(found, rules, whole=tree.whole)
    return Scan(
        root=tree.root,
        files=len(tree.files),
        parsed=sum(each.parsed for each in looked),
        sites=sites,
        exempted=exempted,
        idle=idle,
        unparsed=tuple(each.unparsed for each in looked if each.unparsed),
    )


def _look_at_all(root: Path, files: tuple[str, ...], rules: Rules) -> Iterator[_Looked]:
    """In the order of `files`; in this process where a pool is not worth it, or cannot be had."""
    look = partial(_look_at, root, rules, Prefilter.of(rules))
    done = 0
    cores = min(WORKERS, len(os.sched_getaffinity(0)))
    if cores > 1 and len(files) >= LEAST_FOR_POOL:
        try:
            for each in _in_pool(look, files, cores):
                yield each
                done += 1
            return
        except (OSError, BrokenProcessPool):
            pass  # no semaphores or processes here, or a worker was killed: go on where it stopped
    yield from map(look, files[done:])


def _in_pool(look: Callable[[str], _Looked], files: Iterable[str], cores: int) -> Iterator[_Looked]:
    # All workers are forked by the first task, before the caller's progress bar starts its thread.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        yield from pool.map(look, files, chunksize=CHUNK)


def _look_at(root: Path, rules: Rules, prefilter: Prefilter, file: str) -> _Looked:
    """Read, parse and walk one file; runs in a worker."""
    try:
        source = (root / file).read_bytes()
    except OSError as error:
        return _Looked(
            unparsed=Unparsed(file=file, line=1, column=1, why=f"cannot be read: {error.strerror}")
        )
    if not prefilter.may_hold(source):
        return _Looked()
    try:
        with _deep_recursion(), warnings.catch_warnings(action="ignore"):
            return _walk(source, file, rules)
    except SyntaxError as error:
        place = {"line": error.lineno or 1, "column": error.offset or 1}
        return _Looked(unparsed=Unparsed(file=file, why=f"{_NO_PYTHON}: {error.msg}", **place))
    except (ValueError, RecursionError, MemoryError) as error:
        # Null bytes, a wrong encoding; nesting that only a machine writes.
        return _Looked(unparsed=Unparsed(file=file, line=1, column=1, why=f"{_NO_PYTHON}: {_why(error)}"))


def _walk(source: bytes, file: str, rules: Rules) -> _Looked:
    text = importlib.util.decode_source(source)
    lines = text.split("\n")
    sites = tuple(find_sites(ast.parse(text), file=file, text=text, rules=rules))
    return _Looked(parsed=True, sites=sites, texts=tuple(lines[site.line - 1] for site in sites))


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old, RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(old)


def _apply_exemptions(
    found: list[tuple[Site, str]], rules: Rules, *, whole: bool
) -> tuple[tuple[Site, ...], tuple[Exempted, ...], tuple[Place, ...]]:
    """The sites that count, those that are meant, and the idle places. A scan of one file leaves those of others."""
    counted, exempted = [], []
    used: set[Place] = set()
    for site, line in found:
        covering = [(each, place) for each in rules.exemptions if (place := each.place_of(site, line))]
        used.update(place for _, place in covering)
        if covering:
            exempted.append(Exempted(site, covering[0][0].reason))
        else:
            counted.append(site)
    if not whole:
        return tuple(counted), tuple(exempted), ()
    _refuse_idle([each for each in rules.exemptions if not used.intersection(each.places)])
    idle = tuple(place for each in rules.exemptions for place in each.places if place not in used)
    return tuple(counted), tuple(exempted), idle


def _refuse_idle(exemptions: list[Exemption]) -> None:
    """Raises SourceError for exemptions of which no place holds a read."""
    errors = [
        SourceError(
            each.mark,
            f"exempts nothing: no read of {_named(each.places)} fits it; allowed: to remove it",
            field="exempt",
        )
        for each in exemptions
    ]
    if errors:
        raise errors[0] if len(errors) == 1 else SourceErrors(errors)


def _named(places: tuple[Place, ...]) -> str:
    return str(places[0]) if len(places) == 1 else f"its {len(places)} places"
