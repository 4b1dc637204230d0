"""`list`, `plan`, `suites`, `faults`, `doctor`, `show`: contracts for scripts, words for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from command_line import assert_usage_error, harness
from rich.text import Text

from harness.cli.main import app

SMOKE = {
    "dcp/layout_unit",
    "dcp/parity_dcp2",
    "dcp/parity_dcp4",
    "dcp/parity_dcp8",
    "dcp/gsm8k_dcp4",
    "dcp/gsm8k_dcp8",
    "dcp/pd_dcp4",
    "dcp/triton_dcp",
    "dcp/mla_metadata",
}
NO_MODEL = {"dcp/layout_unit", "dcp/mla_metadata"}


def test_list_keeps_its_json_contract() -> None:
    done = harness("list", "dcp/*", "--json")
    body = json.loads(done.out)
    assert (done.code, done.err, body["schema"]) == (0, "", 1)
    assert {suite["name"] for suite in body["suites"]} >= SMOKE
    for suite in body["suites"]:
        assert set(suite) >= {"name", "summary", "profiles", "tags", "triggers", "upstream"}
    dcp4 = next(suite for suite in body["suites"] if suite["name"] == "dcp/parity_dcp4")
    assert dcp4["profiles"] == ["cpu", "gpu"]
    assert dcp4["triggers"] == ["pr", "nightly"]


def test_list_accepts_an_upstream_name() -> None:
    done = harness("list", "test/registered/dcp/test_dcp_layout_unit.py", "--json")
    assert [suite["name"] for suite in json.loads(done.out)["suites"]] == ["dcp/layout_unit"]


@pytest.mark.parametrize("command", ["run", "list", "plan"])
def test_an_empty_selection_lists_near_names(command: str, tmp_path: Path) -> None:
    done = harness(command, "dcp/nothing", reports=tmp_path)
    assert_usage_error(done, "dcp/nothing", "near names", "dcp/")
    assert list(tmp_path.iterdir()) == []


def test_tags_given_with_a_comma_are_two_tags() -> None:
    both = json.loads(harness("list", "dcp/*", "--tags", "smoke,gqa", "--json").out)
    assert {suite["name"] for suite in both["suites"]} == SMOKE - NO_MODEL
    assert_usage_error(harness("list", "dcp/*", "--tags", "nonsense"), "nonsense", "smoke")


def test_plan_says_where_when_and_why_not() -> None:
    body = json.loads(harness("plan", "dcp/parity_dcp8", "--json").out)
    jobs = {job["id"]: job for job in body["jobs"]}
    assert body["schema"] == 1
    assert set(jobs) == {"dcp/parity_dcp8@cpu", "dcp/parity_dcp8@gpu"}
    cpu, gpu = jobs["dcp/parity_dcp8@cpu"], jobs["dcp/parity_dcp8@gpu"]
    assert (cpu["pool"], cpu["devices"], cpu["start_s"], cpu["cannot"]) == (
        "cpu",
        ["cpu:0", "cpu:1"],
        0,
        None,
    )
    assert "sglang" in gpu["cannot"]
    assert gpu["start_s"] is None


def test_plan_does_not_place_what_is_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "test_one.py").write_text("def test_one(): pass\n")
    (folder / "later.yaml").write_text(
        "summary: later\nprofiles:\n  cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}\n"
        "tests: [test_one.py]\nskip: {reason: waits for a kernel, until: 2999-01-31}\n"
    )
    (job,) = json.loads(harness("plan", "later", "--catalogue", str(folder), "--json").out)["jobs"]
    assert (job["start_s"], job["cannot"]) == (None, "skipped: waits for a kernel (until 2999-01-31)")


def test_plan_for_people_names_what_cannot_run() -> None:
    done = harness("plan", "dcp/parity_dcp4")
    assert done.code == 0
    assert "dcp/parity_dcp4@cpu" in done.out
    assert "1 cannot run here" in done.out


def test_suites_check_and_schema() -> None:
    assert harness("suites", "check").code == 0
    schema = json.loads(harness("suites", "schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)


def test_faults_are_listed() -> None:
    body = json.loads(harness("faults", "list", "--json").out)
    assert {fault["id"] for fault in body["faults"]} >= {"lse-base", "len-ceil", "owner-div"}
    assert "lse-base" in harness("faults", "list").out


def test_doctor_says_what_works(tmp_path: Path) -> None:
    done = harness("doctor", "--json", reports=tmp_path)
    findings = {finding["what"]: finding for finding in json.loads(done.out)["findings"]}
    assert done.code == 0
    assert findings["pool cpu"]["ok"] is True
    assert findings["containment"]["ok"] is True
    # Triton or not: what needs it says so, and everything else runs.
    assert findings["extra [triton]"]["found"] in ("can be imported", "pip install 'harness[triton]'")
    assert "torch" in harness("doctor", reports=tmp_path).out


def test_doctor_says_why_there_is_only_a_guard(tmp_path: Path) -> None:
    found = harness("doctor", reports=tmp_path, PATH=str(tmp_path))
    assert "guard, since " in found.out
    forced = harness("doctor", reports=tmp_path, HARNESS_CONTAINMENT="guard")
    assert "guard, as HARNESS_CONTAINMENT says" in forced.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "dcp/parity_dcp4", "--fault", "lse-bass"], ["lse-bass", "lse-base"]),
        (["run", "dcp/parity_dcp4", "--pool", "h300"], ["h300", "cpu"]),
        (["run", "dcp/layout_unit", "--profile", "gpu"], ["gpu", "dcp/layout_unit"]),
        (["run", "dcp/layout_unit", "--profile", "tpu"], ["tpu", "auto"]),
        (["run", "dcp/layout_unit", "--junit", "no/such/folder/out.xml"], ["no/such/folder"]),
        (["run", "dcp/layout_unit", "--engine-arg", "comm"], ["comm", "NAME=VALUE"]),
        (["list", "dcp/*", "--catalogue", "no-such-folder"], ["no-such-folder"]),
        (["plan", "dcp/*", "--pools", "no-such-file.yaml"], ["no-such-file.yaml"]),
        (["show", "latest"], ["no ledger", "nothing has been run here yet"]),
        (["eval", "parrity", "--url", "http://127.0.0.1:1"], ["parrity", "parity"]),
        (["eval", "parity", "--url", "http://127.0.0.1:1", "-p", "lenghts=[1]"], ["lenghts", "lengths"]),
        (["eval", "parity", "--url", "http://127.0.0.1:1"], ["parity", "--baseline-url"]),
        (["eval", "accuracy", "--url", "http://127.0.0.1:1"], ["task", "is missing"]),
        (["eval", "accuracy", "--url", "http://127.0.0.1:1", "--task", "sum"], ["sum", "sums"]),
        (["eval", "active", "--url", "http://127.0.0.1:1"], ["dcp", "is missing"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "dcp=[1"], ["dcp", "YAML"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "dcp="], ["dcp=", "NAME=YAML"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "=4"], ["=4", "NAME=YAML"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "dcp=four"], ["four", "whole number"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "dcp=4", "-p", "dcp=8"], ["dcp", "twice"]),
        (["eval", "active", "--url", "http://127.0.0.1:1", "-p", "dcp=!!int 4"], ["!!int", "no tags"]),
        (["eval", "drained", "--url", "http://127.0.0.1:1", "-p", "wait=1:30"], ["1:30", "90s"]),
        (["eval", "drained", "--url", "http://127.0.0.1:1", "--timeout", "5"], ["--timeout", "90s"]),
        (["eval", "drained", "--url", "127.0.0.1:1"], ["--url", "http://"]),
        (["eval", "drained", "--url", "ftp://127.0.0.1:1"], ["--url", "http://"]),
        (["eval", "drained", "--url", "http://[::1"], ["--url", "http://"]),
        (["eval", "drained", "--url", "http://127.0.0.1:99999"], ["--url", "http://"]),
        (["eval", "drained", "--url", ""], ["--url", "http://"]),
        (["suites", "check", "--catalogue", "configs"], ["pools.yaml:2:1", "unknown key 'pools'"]),
        (["suites", "check", "--catalogue", "docs"], ["docs", "holds no suite"]),
        (["engine", "serve", "--tp", "4", "--dcp", "3"], ["4", "3"]),
        (["engine", "serve", "--model", "builtin:random-gqqa"], ["builtin:random-gqa"]),
        (["engine", "serve", "--fault", "lse-bass"], ["lse-base"]),
        (["engine", "serve", "--fault", "pd-swap"], ["--fault pd-swap", "--disaggregation-mode prefill"]),
        (
            ["engine", "serve", "--disaggregation-mode", "decode", "--fault", "pd-shift"],
            ["--fault pd-shift", "--disaggregation-mode prefill"],
        ),
        (
            ["engine", "serve", "--fault", "lse-base", "--fault", "stride"],
            ["--fault stride", "--attention-backend triton"],
        ),
    ],
)
def test_bad_usage_is_one_clear_line(args: list[str], words: list[str], tmp_path: Path) -> None:
    assert_usage_error(harness(*args, reports=tmp_path / "reports"), *words)


def test_what_help_says_is_shown_whole() -> None:
    """Words in brackets are markup to whoever shows it, and vanish, where no backslash stands before them."""
    said = list(_helps(typer.main.get_command(app)))
    assert len(said) > 50
    assert [text for text in said if Text.from_markup(text).plain != text.replace("\\[", "[")] == []


def _helps(command: Any) -> Iterator[str]:
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for inner in getattr(command, "commands", {}).values():
        yield from _helps(inner)


def test_every_command_has_help_with_an_example() -> None:
    for command in (
        ["run"],
        ["list"],
        ["plan"],
        ["show"],
        ["eval"],
        ["doctor"],
        ["suites", "check"],
        ["suites", "schema"],
        ["engine", "serve"],
        ["faults", "list"],
        ["baseline", "record"],
        ["baseline", "list"],
    ):
        done = harness(*command, "--help")
        assert done.code == 0
        assert "Example: harness" in done.out, command
