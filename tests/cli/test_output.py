"""What a user's terminal, pipe, locale or disk does to the output: never a traceback, never half a document."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, assert_usage_error, harness

COMMANDS = {
    "table": "list 'dcp/*'",
    "json": "list 'dcp/*' --json",
    "schema": "suites schema",
    "help": "run --help",
    "run": "run dcp/tiny --catalogue suites",
}
FILES = {
    "suites/dcp/tiny.yaml": "summary: tiny – größer\nprofiles: {cpu: {needs: {cpu: 1}, estimate: 5s, timeout: 1m}}\n"
    "tests: [test_tiny.py]\n",
    "suites/dcp/test_tiny.py": "def test_nothing():\n    assert True\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a blank and a letter beyond ASCII in its name, holding one small suite."""
    folder = tmp_path / "mit Leerzeichen ü"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def shell(command: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """`command` by bash, where `harness` is the command of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_REPORTS": str(cwd / "reports"), **env}
    script = f'set -o pipefail; harness() {{ "{sys.executable}" -m harness "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", script], cwd=cwd, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_reader_that_goes_away_ends_the_command_in_silence(command: str, checkout: Path) -> None:
    done = shell(f"harness {command} | true", checkout)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_is_told_in_one_line(command: str, checkout: Path) -> None:
    done = shell(f"harness {command} > /dev/full", checkout)
    assert done.returncode == 3
    assert done.stderr.decode().splitlines() == [
        "harness: stdout: cannot be written: No space left on device"
    ]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_closed_streams_are_no_trouble(command: str, checkout: Path) -> None:
    assert shell(f"harness {command} <&- >&- 2>&-", checkout).returncode == 0
    done = shell(f"harness {command} >&-", checkout)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_file_of_a_run_becomes_its_stdout(checkout: Path) -> None:
    """A closed descriptor is the next one that open() gives: a ledger there would be written over."""
    assert shell("harness run dcp/tiny <&- >&- 2>&-", checkout).returncode == 0
    done = shell("harness show latest --json", checkout)
    assert [job["verdict"] for job in json.loads(done.stdout)["jobs"]] == ["passed"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_every_encoding_will_do(encoding: str, checkout: Path) -> None:
    run = shell("harness run dcp/tiny", checkout, PYTHONIOENCODING=encoding)
    assert (run.returncode, run.stderr) == (0, b"")
    assert "dcp/tiny@cpu  passed" in run.stdout.decode(encoding)
    told = shell("harness list 'dcp/*' --json", checkout, PYTHONIOENCODING=encoding)
    assert json.loads(told.stdout.decode(encoding))["suites"][0]["summary"] == "tiny – größer"


def test_the_c_locale_will_do(checkout: Path) -> None:
    done = shell("harness run dcp/tiny --json -", checkout, LC_ALL="C")
    assert done.returncode == 0
    assert json.loads(done.stdout)["jobs"][0]["verdict"] == "passed"


def test_a_table_in_a_pipe_has_one_line_a_row(checkout: Path) -> None:
    done = harness("list", "dcp/*", COLUMNS="20")
    rows = done.out.splitlines()
    assert all(row == row.rstrip() for row in rows)
    assert [row.split()[0] for row in rows[1:]] == sorted({row.split()[0] for row in rows[1:]})
    assert all(row.split()[0].startswith("dcp/") for row in rows[1:])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "dcp/tiny", "--repeat", "0"], ["--repeat", "1", "harness run --help"]),
        (["run", "dcp/tiny", "--fail-fats"], ["--fail-fats", "--fail-fast", "harness run --help"]),
        (["run"], ["patterns", "harness run --help"]),
        (["rnu"], ["rnu", "harness --help"]),
        (["engine", "serve", "--pagesize", "4"], ["--pagesize", "--page-size"]),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_to_look(
    args: list[str], words: list[str], checkout: Path
) -> None:
    """One line, since it is also what an engine's log ends with when its arguments were wrong."""
    done = harness(*args, cwd=checkout)
    assert_usage_error(done, *words)
    (line,) = done.err.splitlines()
    assert line.startswith("harness: ")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"HARNESS_PROFILE": "xxx"}, ["HARNESS_PROFILE", "xxx", "auto"]),
        ({"HARNESS_TAGS": "nope"}, ["nope"]),
        ({"HARNESS_POOLS": "no-such-file"}, ["no-such-file", "HARNESS_POOLS"]),
        ({"HARNESS_POOL": "no-such-pool"}, ["no-such-pool", "cpu"]),
        ({"HARNESS_SUITES": "no-such-folder"}, ["no-such-folder", "HARNESS_SUITES"]),
        ({"HARNESS_ENGINE_ARGS": "comm=pigeon"}, ["comm", "pigeon", "gloo"]),
        ({"HARNESS_REPORTS": "/dev/null/reports"}, ["/dev/null/reports", "HARNESS_REPORTS"]),
    ],
)
def test_a_wrong_environment_is_told(env: dict[str, str], words: list[str], checkout: Path) -> None:
    assert_usage_error(harness("run", "dcp/tiny", cwd=checkout, **env), *words)


def test_the_command_line_beats_the_environment_which_beats_the_default(checkout: Path) -> None:
    def profiles(*args: str, **env: str) -> set[str]:
        plan = json.loads(harness("plan", "dcp/parity_dcp4", "--json", *args, **env).out)
        return {job["profile"] for job in plan["jobs"]}

    assert profiles() == {"cpu", "gpu"}
    assert profiles(HARNESS_PROFILE="cpu") == {"cpu"}
    assert profiles("--profile", "gpu", HARNESS_PROFILE="cpu") == {"gpu"}
    empty = dict.fromkeys(
        ("HARNESS_PROFILE", "HARNESS_TAGS", "HARNESS_POOLS", "HARNESS_POOL", "HARNESS_SUITES"), ""
    )
    assert profiles(**empty) == {"cpu", "gpu"}
    assert "reports/ledger.db" in harness("show", cwd=checkout, HARNESS_REPORTS="").err


@pytest.mark.parametrize("place", ["no/such/folder/out", "/dev/null/out", "suites"])
@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_a_report_that_could_not_be_written_is_refused_before_the_run(
    option: str, place: str, checkout: Path
) -> None:
    done = harness("run", "dcp/tiny", option, place, cwd=checkout, reports=checkout / "reports")
    assert_usage_error(done, place, "cannot be written")
    assert not (checkout / "reports").exists()


def test_a_report_that_cannot_be_written_after_all_takes_the_green_away(checkout: Path) -> None:
    """The job itself puts a file where the report's folder was; the summary is told all the same."""
    (checkout / "out").mkdir()
    text = "from pathlib import Path\n\ndef test_it():\n    Path('out').rmdir()\n    Path('out').touch()\n"
    (checkout / "suites" / "dcp" / "test_tiny.py").write_text(text)
    done = harness("run", "dcp/tiny", "--json", "out/x.json", cwd=checkout, reports=checkout / "reports")
    assert done.code == 3
    assert "dcp/tiny@cpu  passed" in done.out
    assert done.err.startswith("harness: cannot write the report out/x.json")


def test_an_engine_repository_is_its_own_catalogue(checkout: Path) -> None:
    (checkout / ".harness").mkdir()
    (checkout / "suites").rename(checkout / ".harness" / "suites")
    for args in (["list", "dcp/*"], ["list", "dcp/*", "--catalogue", ".harness/suites"]):
        assert harness(*args, cwd=checkout).out.splitlines()[1].split()[0] == "dcp/tiny"
    assert "dcp/tiny@cpu  passed" in harness("run", "dcp/tiny", cwd=checkout, reports=checkout / "r").out
