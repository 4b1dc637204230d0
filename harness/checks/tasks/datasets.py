"""Published data files by path or URL, proven by their SHA-256. Used by tasks whose data is not part of harness.

A path is read where it lies; a URL is downloaded once into a cache folder, to a temporary name that is then
renamed, and proven again at each read. Failure rule: what does not have the wanted SHA-256 is never used. A file
that a user named is a UsageError, a download that fails an InfraError; a cache that was damaged is only noted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from harness.errors import InfraError, UsageError

# GSM8K is 0.75 MB; whatever is far larger is some other file, and need not be read to its end.
MAX_BYTES = 16 * 1024 * 1024
# A slow link brings 0.75 MB in seconds. One that does not within this is told instead of waited for.
DOWNLOAD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One published file: what errors call it, what it must be, and how a user may name one of their own."""

    name: str
    sha256: str
    elsewhere: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A file's proven bytes. `place` is the file they were read from; `notes` is what a user should know."""

    data: bytes
    place: Path
    notes: tuple[str, ...] = ()


def cache_folder() -> Path:
    """Where downloads are kept: $HARNESS_CACHE, else `harness` in the XDG cache folder."""
    if named := os.environ.get("HARNESS_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "harness"


def read_dataset(source: str, pin: Pin, *, cache: Path | None = None, seconds: float = DOWNLOAD_S) -> Dataset:
    """The file at `source`, a path or URL, proven to be the one that `pin` wants."""
    # Plain HTTP is as good as HTTPS here, the pin proves what came: a mirror inside a cluster may have no more.
    if source.startswith(("https://", "http://")):
        return _cached(source, pin, folder=cache or cache_folder(), seconds=seconds)
    path = Path(source).expanduser()
    return Dataset(data=_proven(_read(path, pin), pin, path), place=path)


def _read(path: Path, pin: Pin) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"{pin.name}: {path} cannot be read: {error.strerror}; wanted is the published file: {pin.elsewhere}"
        ) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{pin.name}: {path} is larger than {MAX_BYTES} bytes; it is not the published file")
    return data


def _proven(data: bytes, pin: Pin, place: Path | str) -> bytes:
    found = _sha256(data)
    if found != pin.sha256:
        raise UsageError(
            f"{pin.name}: {place} is not the published file: its SHA-256 is {found}, wanted is {pin.sha256}"
        )
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _cached(url: str, pin: Pin, *, folder: Path, seconds: float) -> Dataset:
    """The file named by its SHA-256 in `folder`; downloaded where it is not there, or no longer what it was."""
    place = folder / f"{pin.sha256}.data"
    kept = _kept(place)
    if kept is not None and _sha256(kept) == pin.sha256:
        return Dataset(data=kept, place=place)
    data = _proven(_download(url, pin, seconds=seconds), pin, url)
    damaged = [] if kept is None else [f"{pin.name}: {place} was damaged and has been downloaded anew"]
    return Dataset(data=data, place=place, notes=(*damaged, *_keep(data, place, pin)))


def _kept(place: Path) -> bytes | None:
    try:
        return place.read_bytes()
    except OSError:
        return None  # most often it is not there yet; where it cannot be read, writing it again will tell


def _keep(data: bytes, place: Path, pin: Pin) -> list[str]:
    """Write a whole file or none, whoever else writes it now. A cache that takes nothing costs time, no more."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=place.stem, delete=False) as file:
            file.write(data)
        Path(file.name).replace(place)
    except OSError as error:
        return [f"{pin.name}: {place} cannot be written, the next run downloads again: {error.strerror}"]
    return []


def _download(url: str, pin: Pin, *, seconds: float) -> bytes:
    """All that `url` answers, at most MAX_BYTES, within `seconds`."""
    end = time.monotonic() + seconds
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=seconds) as answer:
            if answer.status_code >= 400:
                raise _unfetched(pin, url, f"status {answer.status_code}")
            return _receive(answer, pin, url, end=end)
    except (httpx.TimeoutException, TimeoutError) as error:
        raise _unfetched(pin, url, f"not done within {seconds:g} s") from error
    except httpx.InvalidURL as error:
        raise UsageError(f"{pin.name}: {url} is no URL: {error}") from error
    except httpx.HTTPError as error:
        raise _unfetched(pin, url, str(error)) from error


def _receive(answer: httpx.Response, pin: Pin, url: str, *, end: float) -> bytes:
    data = bytearray()
    for piece in answer.iter_bytes():
        data += piece
        if len(data) > MAX_BYTES:
            raise UsageError(
                f"{pin.name}: {url} is larger than {MAX_BYTES} bytes; it is not the published file"
            )
        if time.monotonic() >= end:
            raise TimeoutError
    return bytes(data)


def _unfetched(pin: Pin, url: str, why: str) -> InfraError:
    return InfraError("download", f"{pin.name}: {url} cannot be fetched: {why}; {pin.elsewhere}")
