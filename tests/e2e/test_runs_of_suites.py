"""Whole runs: the contract of `--json`, JUnit, exit codes, deadlines, two runs at once, gloo."""

from __future__ import annotations

import json
import os
import signal
import xml.etree.ElementTree as ET

import pytest
from runs import World, gone, the_one, until

# A short baseline, then nothing that a stopped rank could answer.
HANGING = "[active: {dcp: 2}, caps: {}]"


def test_a_run_keeps_its_contracts(world: World) -> None:
    world.suite("quick")
    code, out, err = world.run("run", "quick", "--json", "-", "--junit", "out.xml")
    assert code == 0, out + err
    body = json.loads(out)
    assert set(body) >= {"schema", "run", "harness_sha", "jobs"}
    (job,) = body["jobs"]
    assert (job["id"], job["suite"], job["profile"], job["matrix"]) == ("quick@cpu", "quick", "cpu", {})
    assert (job["verdict"], job["engine_sha"]) == ("passed", body["harness_sha"])
    assert [check["name"] for check in job["checks"]] == ["active", "parity", "drained"]
    (attempt,) = job["attempts"]
    assert (attempt["n"], attempt["outcome"], attempt["reason"]) == (1, "passed", "")
    assert attempt["devices"] in (["cpu:0"], ["cpu:1"])
    cases = ET.parse(world.folder / "out.xml").getroot().findall(".//testcase")
    assert [case.get("name") for case in cases] == ["active", "parity", "drained"]
    assert world.shown() == body
    assert world.shown(body["run"]) == body
    assert "quick@cpu" in world.run("show", "latest", "quick@cpu")[1]
    assert world.run("show", "latest", "slow@cpu")[0] == 2
    assert world.run("show", "no-such-run")[0] == 2


def test_output_to_a_pipe_is_a_plain_line_per_event(world: World) -> None:
    world.suite("quick")
    code, out, err = world.run("run", "quick", CI="true")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "parity passed" in out
    assert "1 passed" in out


@pytest.mark.parametrize("fault", ["lse-base", "len-ceil", "owner-div"])
def test_a_fault_turns_a_run_red_and_says_where(world: World, fault: str) -> None:
    checks = "[active: {dcp: 2}, parity: {lengths: [5, 9], max_new_tokens: 8}, rows: {lengths: [9]}]"
    world.suite("faulty", checks=checks)
    code, out, _ = world.run("run", "faulty", "--fault", fault)
    assert code == 1
    (job,) = world.shown()["jobs"]
    found = {check["name"]: check for check in job["checks"]}
    assert job["verdict"] == "failed"
    assert found["parity"]["outcome"] == "failed"
    assert found["rows"]["outcome"] == ("failed" if fault == "owner-div" else "passed")
    worst = found["parity"]["figures"]["worst"]
    assert {"length", "position", "logprob", "baseline_logprob"} <= set(worst)
    assert (
        f"{worst['logprob']:.6f}" in found["parity"]["message"] or found["parity"]["figures"]["differences"]
    )
    assert f"harness run faulty --profile cpu --fault {fault}" in out


def test_gloo_runs_the_same_checks(world: World) -> None:
    world.suite("quick")
    code, out, err = world.run("run", "quick", "--engine-arg", "comm=gloo")
    assert code == 0, out + err


def test_an_engine_argument_that_cannot_be_is_refused_before_anything_starts(world: World) -> None:
    world.suite("quick")
    code, _, err = world.run("run", "quick", "--engine-arg", "comm=pigeon")
    assert code == 2
    assert "pigeon" in err


def test_a_launch_that_the_engine_refuses_fails_the_job_in_its_words(world: World) -> None:
    world.suite("quick")
    code, out, _ = world.run("run", "quick", "--engine-arg", "kv-bytes=1000")
    assert code == 1
    assert "1000 B" in out


def test_a_rank_that_hangs_is_a_timeout_with_the_stacks_of_the_others(world: World) -> None:
    # 4 s are left for each check once both launches have had their 20 s.
    world.suite("hang", checks=HANGING, estimate="1s", timeout="44s", launch="20s")
    harness = world.start("run", "hang", "--profile", "cpu")
    until(lambda: (world.reports / "latest/hang@cpu/1/1-engine-tp2-dcp2.log").exists(), "the engine starts")
    until(lambda: the_one(harness.pid, "rank 1/2 tp2 dcp2") is not None, "its ranks run")
    victim = the_one(harness.pid, "rank 1/2 tp2 dcp2")
    assert victim is not None
    os.kill(victim, signal.SIGSTOP)
    out, err = harness.communicate()
    assert harness.returncode == 1, out + err
    (job,) = world.shown()["jobs"]
    assert job["verdict"] == "timeout"
    assert "deadline 'check " in job["reason"] or "deadline 'launch'" in job["reason"]
    log = (world.reports / "latest/hang@cpu/1/1-engine-tp2-dcp2.log").read_text()
    assert log.count("Current thread") >= 2
    assert "rank.py" in log
    assert gone([victim])


def test_a_profile_asked_for_by_name_must_run(world: World) -> None:
    world.suite("quick")
    file = world.folder / "suites" / "quick.yaml"
    gpu = (
        "  gpu:\n    needs: {gpu: b200, count: 2}\n    estimate: 1m\n    timeout: 60m\n    engine: "
        "{kind: sglang, model: m, parallel: {tp: 2, dcp: 2}}\n"
    )
    file.write_text(file.read_text().replace("profiles:\n", "profiles:\n" + gpu))
    code, out, _ = world.run("run", "quick")
    assert code == 0
    assert out.splitlines()[-12:] != []
    assert "1 passed, 1 not run" in out
    assert world.run("run", "quick", "--profile", "gpu")[0] == 3
    assert world.run("run", "quick", "--require-all")[0] == 3


def test_two_runs_at_once_do_not_disturb_each_other(world: World) -> None:
    world.suite("quick")
    first, second = (
        world.start("run", "quick", "--json", "a.json"),
        world.start("run", "quick", "--json", "b.json"),
    )
    for process in (first, second):
        out, err = process.communicate()
        assert process.returncode == 0, out + err
    runs = [json.loads((world.folder / name).read_text()) for name in ("a.json", "b.json")]
    assert runs[0]["run"] != runs[1]["run"]
    for body in runs:
        assert [job["verdict"] for job in body["jobs"]] == ["passed"]
        assert world.shown(body["run"]) == body


def test_repeats_are_attempts_of_one_job(world: World) -> None:
    world.suite("quick", checks="[active: {dcp: 2}]")
    assert world.run("run", "quick", "--repeat", "2")[0] == 0
    (job,) = world.shown()["jobs"]
    assert [attempt["n"] for attempt in job["attempts"]] == [1, 2]


def test_a_catalogue_of_any_name_and_a_path_that_is_not_ascii(world: World) -> None:
    world.suite("quick")
    elsewhere = world.folder / "prüfungen und mehr" / "dcp"
    elsewhere.mkdir(parents=True)
    (world.folder / "suites" / "quick.yaml").rename(elsewhere / "quick.yaml")
    args = ["run", "dcp/quick", "--catalogue", str(elsewhere.parent)]
    code, out, err = world.run(*args, LC_ALL="C")
    assert code == 0, out + err
    assert "dcp/quick@cpu" in out
