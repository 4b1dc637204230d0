"""Where things are, in the order command line, environment (`HARNESS_*`), default."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

import harness
from harness.errors import UsageError

# A source checkout carries its own catalogue and pools beside the package.
CHECKOUT = Path(harness.__file__).resolve().parent.parent


def catalogue_folder(given: Path | None) -> Path:
    """The catalogue: as given, an engine repository's `./.harness/suites`, `./suites`, or the one of the
    checkout that harness runs from."""
    if given is not None:
        if not given.is_dir():
            raise UsageError(f"--catalogue {given} is no folder (it may come from HARNESS_SUITES)")
        return given
    for folder in (Path(".harness/suites"), Path("suites"), CHECKOUT / "suites"):
        if folder.is_dir():
            return folder
    raise UsageError("no catalogue: there is no folder `suites` here; give one with --catalogue")


def pools_file(given: Path | None) -> Path:
    """The pools: as given, `./configs/pools.yaml`, or the one of the checkout."""
    if given is not None:
        if not given.is_file():
            raise UsageError(f"--pools {given} is no file (it may come from HARNESS_POOLS)")
        return given
    for file in (Path("configs/pools.yaml"), CHECKOUT / "configs" / "pools.yaml"):
        if file.is_file():
            return file
    raise UsageError("no pools: there is no configs/pools.yaml here; give one with --pools")


def reports_folder(given: Path | None) -> Path:
    """Where runs are written: as given, else `./reports`."""
    return given if given is not None else Path("reports")


def make_reports_folder(folder: Path) -> None:
    """Make it and try it. Raises UsageError where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UsageError(
            f"the reports folder {folder} cannot be written: {error.strerror}; "
            "choose another with --reports or HARNESS_REPORTS"
        ) from None


@cache
def harness_sha(*, ignoring: Path | None = None) -> str:
    """The commit of the checkout that harness runs from, `+dirty` with uncommitted changes (but for those of the
    file `ignoring`); else the version that is installed, or of a bare copy `source` and a digest of its files."""
    try:
        # A copy inside another repository is none of its commits.
        _git("ls-files", "--error-unmatch", "--", "harness/__init__.py")
        commit = _git("rev-parse", "HEAD")
        dirty = bool(_git("status", "--porcelain", "--untracked-files=no", "--", *_but(ignoring)))
    except (OSError, subprocess.SubprocessError):
        return _without_git()
    return commit + ("+dirty" if dirty else "")


def _without_git() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from harness.environments.source import digest_of

    try:
        return f"version {version('harness')}"
    except PackageNotFoundError:
        return f"source {digest_of(CHECKOUT / 'harness')}"


def _but(file: Path | None) -> list[str]:
    """The words by which git leaves out a file of the checkout."""
    if file is None or not file.absolute().is_relative_to(CHECKOUT):
        return []
    return [f":(exclude){file.absolute().relative_to(CHECKOUT)}"]


def _git(*args: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
