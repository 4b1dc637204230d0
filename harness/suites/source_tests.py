"""`source_tests:`, the engine's own test files as jobs: one for each file of the source that is given at run time.

`read_source_tests` reads what the patterns match; everything after that is a pure function of those texts.
A file says in its own words on which machines upstream runs it, by calls such as `register_cpu_ci(...)` at
module level; they are found by parsing, for importing a test file would import the engine.

Failure rule: nothing is left out in silence. A pattern without match, a file that is registered for other
machines and a file that the suite excludes all become jobs that say why they do not run. An exclusion that
leaves nothing out, since the source moved on, is told by `idle_exclusions`.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from harness.suites.jobs import Job, SourceFile, job_id
from harness.suites.model import LeftOut, SourceTests

# Pattern → the files it matches, path relative to the source's root → text.
Listing = Mapping[str, Mapping[str, str]]

_PREFIX, _SUFFIX = "register_", "_ci"
_NO_MATCH = "this source has no such file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One `register_<backend>_ci(...)`; `seconds` is how long upstream says it takes, `disabled` why it is off."""

    backend: str
    seconds: float = 0.0
    disabled: str | None = None


def read_source_tests(tests: SourceTests, *, root: Path) -> Listing:
    """What each pattern matches below `root`, and its text; files that cannot be decoded lose only characters."""
    return {
        pattern: {
            path.relative_to(root).as_posix(): path.read_text("utf-8", errors="replace")
            for path in sorted(root.glob(pattern))
            if path.suffix == ".py" and path.is_file()
        }
        for pattern in tests.files
    }


def source_jobs(job: Job, listing: Listing) -> list[Job]:
    """One job for each file of the listing, in order of path, and one for each pattern without match."""
    tests = job.source_tests
    assert tests is not None, "only suites with source_tests are expanded"
    texts = {path: text for found in listing.values() for path, text in found.items()}
    jobs = [_file_job(job, path, texts[path]) for path in sorted(texts)]
    for pattern in (pattern for pattern in tests.files if not listing[pattern]):
        jobs.append(_with_file(job, SourceFile(path=pattern, missing=_NO_MATCH)))
    return jobs


def idle_exclusions(tests: SourceTests, listing: Listing) -> list[LeftOut]:
    """The exclusions that leave nothing out: their file is not among those of the source, or defines no test of
    that name. One that a file inherits from another one counts as idle; of a file that cannot be parsed none does.
    """
    texts = {path: text for found in listing.values() for path, text in found.items()}
    return [entry for entry in tests.exclude if entry.file not in texts or _is_idle(entry, texts[entry.file])]


def _is_idle(entry: LeftOut, text: str) -> bool:
    module = _parsed(text)
    if entry.test is None or module is None:
        return False
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    defined = {node.name for node in ast.walk(module) if isinstance(node, kinds)}
    return not set(entry.test.partition("[")[0].split("::")) <= defined


def registrations(text: str) -> list[Registration] | None:
    """What a test file says of the machines it is for; None where it cannot be parsed."""
    module = _parsed(text)
    if module is None:
        return None
    return [found for statement in module.body for found in _registered(statement)]


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # upstream's escapes are upstream's business
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _registered(statement: ast.stmt) -> Iterator[Registration]:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
        return
    # As upstream declares them: est_time, suite, nightly, disabled; the rest by keyword only.
    given = dict(zip(("est_time", "suite", "nightly", "disabled"), call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    values = {key: node.value for key, node in given.items() if isinstance(node, ast.Constant)}
    seconds, disabled = values.get("est_time"), values.get("disabled")
    yield Registration(
        backend=name.removeprefix(_PREFIX).removesuffix(_SUFFIX),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        disabled=None if disabled is None else str(disabled),
    )


def _file_job(job: Job, path: str, text: str) -> Job:
    tests = job.source_tests
    assert tests is not None, "only suites with source_tests are expanded"
    excluded = [entry for entry in tests.exclude if entry.file == path]
    whole = next((entry.reason for entry in excluded if entry.test is None), None)
    found = registrations(text)
    file = SourceFile(
        path=path,
        sha256=sha256(text.encode()).hexdigest(),
        excused={entry.test: entry.reason for entry in excluded if entry.test is not None},
        # A file that cannot be parsed is run: pytest then tells what is wrong with it, and in red.
        left_out=whole or (None if found is None else why_not_registered(found, backend=tests.registered)),
    )
    wanted = [each.seconds for each in found or () if each.backend == tests.registered]
    return replace(_with_file(job, file), estimate_s=job.estimate_s + max(wanted, default=0.0))


def why_not_registered(found: list[Registration], *, backend: str) -> str | None:
    """Why upstream does not run a file on machines of that kind; None when it does."""
    mine = [each for each in found if each.backend == backend]
    if not mine:
        others = " and ".join(dict.fromkeys(each.backend for each in found))
        return f"registered for {others} only" if others else "registered for no machine"
    if all(each.disabled is not None for each in mine):
        return f"disabled by upstream: {mine[0].disabled}"
    return None


def _with_file(job: Job, file: SourceFile) -> Job:
    matrix = {**job.matrix, "file": file.path}
    return replace(job, id=job_id(job.suite, job.profile, matrix), matrix=matrix, source_file=file)
