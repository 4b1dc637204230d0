"""A published file by path or URL: read, downloaded once, proven, and refused where it is another."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.checks.tasks import datasets
from harness.checks.tasks.datasets import Pin, cache_folder, read_dataset
from harness.errors import InfraError, UsageError

DATA = b'{"question": "1+1?", "answer": "#### 2"}\n'
PIN = Pin(name="tiny", sha256=hashlib.sha256(DATA).hexdigest(), elsewhere="or use --data")


class Site:
    """What a web server has: an answer to every path, and how often it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.write: Callable[[BaseHTTPRequestHandler, bytes], None] = lambda handler, data: None


@contextmanager
def serving_files() -> Iterator[tuple[Site, str]]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            if self.path in site.redirects:
                self.send_response(302)
                self.send_header("location", site.redirects[self.path])
                self.send_header("content-length", "0")
                self.end_headers()
                return
            data = site.answers.get(self.path)
            self.send_response(404 if data is None else 200)
            self.end_headers()
            self.wfile.write(data or b"")
            site.write(self, data or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads heed the proxies of the environment; these servers are here."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[tuple[Site, str]]:
    with serving_files() as found:
        yield found


def test_a_path_is_read_where_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(DATA)
    found = read_dataset(str(path), PIN, cache=tmp_path / "cache")
    assert (found.data, found.place, found.notes) == (DATA, path, ())
    assert not (tmp_path / "cache").exists()


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data.jsonl").write_bytes(DATA)
    assert read_dataset("~/data.jsonl", PIN).data == DATA


def test_another_file_is_refused_with_both_hashes(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(DATA + b"\n")
    with pytest.raises(UsageError) as caught:
        read_dataset(str(path), PIN)
    for words in (str(path), PIN.sha256, hashlib.sha256(DATA + b"\n").hexdigest()):
        assert words in str(caught.value)


def test_a_path_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.jsonl cannot be read: No such file.* or use --data"):
        read_dataset(str(tmp_path / "none.jsonl"), PIN)
    with pytest.raises(UsageError, match="Is a directory"):
        read_dataset(str(tmp_path), PIN)


def test_a_file_far_too_large_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[Site, str]
) -> None:
    monkeypatch.setattr(datasets, "MAX_BYTES", 100)
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        read_dataset(str(path), PIN)
    files, url = site
    files.answers["/big"] = b"x" * 101
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        read_dataset(f"{url}/big", PIN, cache=tmp_path)


def test_a_url_is_downloaded_once(tmp_path: Path, site: tuple[Site, str]) -> None:
    files, url = site
    files.answers["/data.jsonl"] = DATA
    first = read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path / "a" / "b")
    second = read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path / "a" / "b")
    assert first == second
    assert first.data == DATA == first.place.read_bytes()
    assert first.notes == ()
    assert files.asked == ["/data.jsonl"]
    assert list((tmp_path / "a" / "b").iterdir()) == [first.place]


def test_a_redirect_is_followed(tmp_path: Path, site: tuple[Site, str]) -> None:
    files, url = site
    files.answers["/data.jsonl"] = DATA
    files.redirects["/old"] = "/data.jsonl"
    assert read_dataset(f"{url}/old", PIN, cache=tmp_path).data == DATA


@pytest.mark.parametrize("damage", [b"", DATA[:-1], DATA + b" "])
def test_a_damaged_cache_is_downloaded_anew_and_told(
    tmp_path: Path, site: tuple[Site, str], damage: bytes
) -> None:
    files, url = site
    files.answers["/data.jsonl"] = DATA
    place = read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path).place
    place.write_bytes(damage)
    again = read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path)
    assert (again.data, place.read_bytes()) == (DATA, DATA)
    assert again.notes == (f"tiny: {place} was damaged and has been downloaded anew",)
    assert read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path).notes == ()


def test_another_file_from_a_url_is_refused_and_not_kept(tmp_path: Path, site: tuple[Site, str]) -> None:
    files, url = site
    files.answers["/data.jsonl"] = b"<html>log in first</html>"
    with pytest.raises(UsageError, match=f"{url}/data.jsonl is not the published file"):
        read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_takes_nothing_costs_only_the_next_download(
    tmp_path: Path, site: tuple[Site, str]
) -> None:
    files, url = site
    files.answers["/data.jsonl"] = DATA
    (tmp_path / "file").write_bytes(b"")
    found = read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path / "file" / "cache")
    assert found.data == DATA
    assert "the next run downloads again" in found.notes[0]


def test_a_download_that_fails_is_the_machines_fault(tmp_path: Path, site: tuple[Site, str]) -> None:
    _, url = site
    with pytest.raises(InfraError, match=r"/none cannot be fetched: status 404; or use --data") as caught:
        read_dataset(f"{url}/none", PIN, cache=tmp_path)
    assert caught.value.probe == "download"


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    with serving_files() as (_, url):
        pass
    with pytest.raises(InfraError, match=r"cannot be fetched: .*refused"):
        read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path)


@pytest.mark.parametrize("dribble", [False, True], ids=["silent", "dribbling"])
def test_a_download_has_a_deadline(tmp_path: Path, site: tuple[Site, str], dribble: bool) -> None:
    files, url = site
    files.answers["/data.jsonl"] = DATA[:10]
    over = threading.Event()

    def write(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        while not over.wait(0.05 if dribble else 30):
            handler.wfile.write(b"x")

    files.write = write
    try:
        with pytest.raises(InfraError, match=r"not done within 0.5 s"):
            read_dataset(f"{url}/data.jsonl", PIN, cache=tmp_path, seconds=0.5)
    finally:
        over.set()


def test_what_is_no_url_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no URL"):
        read_dataset("http://host:port/data", PIN, cache=tmp_path)


def test_where_downloads_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HARNESS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "harness"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/harness")
    monkeypatch.setenv("HARNESS_CACHE", "/own")
    assert cache_folder() == Path("/own")
