"""Suite files under bare pytest: same checks, real engines, nothing green that did not pass."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from suite_runs import BASELINE, ROOT, command, environment, run_pytest, tiny_suite

ALL = (
    "[active: {dcp: 2}, parity: {lengths: [1, 2, 9], max_new_tokens: 4}, batch: {sizes: [2, 2, 5]}, "
    "capacity: {}, caps: {}, rows: {lengths: [1, 9]}, drained: {}]"
)


def test_every_check_runs_and_passes(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks=ALL)
    logs = tmp_path / "logs"
    logs.mkdir()
    done = run_pytest(file, "--harness-attempt-dir", logs, cwd=tmp_path)
    assert done.code == 0, done.out
    # One baseline and one engine serve all checks: each further launch would be minutes of GPUs.
    assert sorted(log.name for log in logs.iterdir()) == ["1-baseline-tp2-dcp1.log", "2-engine-tp2-dcp2.log"]
    assert list(done.checks) == ["active", "parity", "batch", "capacity", "caps", "rows", "drained"]
    assert {check["outcome"] for check in done.checks.values()} == {"passed"}
    assert "7 passed" in done.out


def test_a_fault_turns_the_check_red_that_should_see_it(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[active: {dcp: 2}, parity: {lengths: [5]}, rows: {lengths: [9]}]")
    done = run_pytest(file, "--harness-fault", "owner-div", cwd=tmp_path)
    assert done.code == 1
    found = {name: check["outcome"] for name, check in done.checks.items()}
    assert found == {"active": "passed", "parity": "failed", "rows": "failed"}
    assert "output position" in done.out
    assert "should hold position" in done.out
    worst = done.checks["parity"]["figures"]["worst"]
    assert abs(worst["logprob"] - worst["baseline_logprob"]) == worst["gap"] > 1e-2


def test_a_check_with_its_own_dtype_gets_its_own_engine(tmp_path: Path) -> None:
    file = tiny_suite(
        tmp_path, checks="[active: {dcp: 2}, parity: {lengths: [3], dtype: bf16, logprob: 0.5}]"
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    run_pytest(file, "--harness-attempt-dir", logs, cwd=tmp_path)
    names = sorted(log.name for log in logs.iterdir())
    assert names == ["1-baseline-tp2-dcp1.log", "2-engine-tp2-dcp2.log", "3-engine-tp2-dcp2.log"]


def test_a_missing_baseline_is_an_error(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[parity: {lengths: [3]}, capacity: {}]", baseline="")
    done = run_pytest(file, cwd=tmp_path)
    assert done.code == 1
    assert [check["outcome"] for check in done.checks.values()] == ["error", "error"]
    assert "no dcp=1 baseline" in done.out


def test_a_baseline_that_fails_is_an_error_of_the_checks_that_compare(tmp_path: Path) -> None:
    # The model has 8 query heads, which 16 ranks cannot share.
    file = tiny_suite(tmp_path, checks="[active: {dcp: 2}, parity: {lengths: [3]}, rows: {lengths: [3]}]")
    text = file.read_text().replace(BASELINE, "baseline: {parallel: {dcp: 1, tp: 16}}")
    file.write_text(text)
    done = run_pytest(file, cwd=tmp_path)
    found = {name: check["outcome"] for name, check in done.checks.items()}
    assert found == {"active": "passed", "parity": "error", "rows": "passed"}
    assert "baseline: engine did not start" in done.checks["parity"]["message"]


def test_an_engine_that_cannot_start_is_started_once(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[active: {dcp: 2}, caps: {}]", model="builtin:no-such-model")
    logs = tmp_path / "logs"
    logs.mkdir()
    done = run_pytest(file, "--harness-attempt-dir", logs, cwd=tmp_path)
    assert done.code == 1
    assert [check["outcome"] for check in done.checks.values()] == ["error", "error"]
    assert "no-such-model" in done.out
    (log,) = logs.glob("*.log")
    assert log.read_text().count("no-such-model") == 1


def test_engine_arguments_reach_the_engine(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[active: {dcp: 2}]", baseline="")
    done = run_pytest(file, "--harness-engine-arg", "dcp-comm-backend=a2a", cwd=tmp_path)
    assert done.code == 0, done.out
    assert "all_to_all" in done.checks["active"]["figures"]["dcp_collectives"]


def test_an_open_outcome_is_red_alone_and_open_under_the_executor(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[rows: {lengths: [3]}]", baseline="", args=", kv-rows: false")
    file.write_text(file.read_text().replace("kv-rows: false", "no-kv-rows: true"))
    alone = run_pytest(file, cwd=tmp_path)
    assert (alone.code, alone.checks["rows"]["outcome"]) == (1, "unproven")
    logs = tmp_path / "logs"
    logs.mkdir()
    judged = run_pytest(file, "--harness-attempt-dir", logs, cwd=tmp_path)
    assert (judged.code, judged.checks["rows"]["outcome"]) == (0, "unproven")


def test_plain_test_files_of_a_suite_are_collected(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "plain.yaml").write_text(
        "summary: plain tests\nprofiles:\n  cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}\n"
        "tests: [test_plain_*.py]\n"
    )
    (folder / "test_plain_one.py").write_text(
        "import pytest\n"
        "@pytest.mark.topology(tp=4, dcp=[2, 4])\n"
        "def test_rank(parallel):\n    assert parallel.attn_dcp_rank == parallel.tp_rank % parallel.dcp_size\n"
    )
    for extra in ([], ["-n", "2"]):
        done = run_pytest(folder / "plain.yaml", *extra, cwd=tmp_path)
        assert done.code == 0, done.out
        assert "8 passed" in done.out


TARGETS = """\
summary: says what it looks at
profiles:
  cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}
targets: [reference, sglang]
tests: [test_says.py]
"""
SAYS = """\
def test_says(target, record_property):
    record_property("harness_check", {"name": "says", "outcome": "passed", "message": target})
"""


def test_a_suite_tells_its_tests_what_to_look_at(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "says.yaml").write_text(TARGETS)
    (folder / "test_says.py").write_text(SAYS)
    for given, said in (((), "reference"), (("--harness-target", "sglang"), "sglang")):
        done = run_pytest(folder / "says.yaml", *given, cwd=tmp_path)
        assert done.code == 0, done.out
        log = (tmp_path / "events.jsonl").read_text()
        assert f'"message": "{said}"' in log
        (tmp_path / "events.jsonl").unlink()


def test_a_target_that_the_suite_has_not_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "says.yaml").write_text(TARGETS.replace("[reference, sglang]", "[reference]"))
    (folder / "test_says.py").write_text(SAYS)
    for given, says in (
        ("sglang", "has no target sglang (it has reference)"),
        ("slang", "did you mean 'sglang'"),
    ):
        done = run_pytest(folder / "says.yaml", "--harness-target", given, cwd=tmp_path)
        assert done.code != 0
        assert says in done.out


def test_a_missing_extra_is_told_before_anything_is_imported(tmp_path: Path) -> None:
    """Modules can be kept from being found by a path entry of their own: an import would say otherwise."""
    file = tiny_suite(tmp_path, checks="[drained: {}]")
    file.write_text(file.read_text().replace("{cpu: 1}", "{cpu: 1, extras: [nixl]}"))
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'nixl_cu12' else found(name, *more)\n"
    )
    done = run_pytest(file, cwd=tmp_path, PYTHONPATH=f"{hide}{os.pathsep}{ROOT}")
    assert done.code != 0
    assert "tiny needs the extra [nixl]: pip install 'harness[nixl]'" in done.out


def test_the_engines_own_tests_are_no_items_of_the_suite_file(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    text = TARGETS.split("targets:")[0] + "python: sglang\nsource_tests: {files: [test/test_x.py]}\n"
    (folder / "own.yaml").write_text(text)
    done = run_pytest(folder / "own.yaml", cwd=tmp_path)
    assert done.code != 0
    assert "harness run own --source PATH" in done.out


def test_an_excused_test_is_skipped_with_the_reason_also_in_a_unittest_class(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(
        "import unittest\n"
        "class TestA(unittest.TestCase):\n"
        "    def test_net(self): raise OSError\n"
        "    def test_net_too(self): pass\n"
        "def test_plain(): pass\n"
    )
    excuse = ("--harness-excuse", "TestA::test_net", "asks a hub")
    done = run_pytest(tmp_path / "test_them.py", *excuse, "-rs", cwd=tmp_path)
    assert done.code == 0, done.out
    assert "2 passed, 1 skipped" in done.out
    assert "asks a hub" in done.out


def test_a_test_file_without_a_test_is_an_error_beside_others(tmp_path: Path) -> None:
    folder = tmp_path / "suites"
    folder.mkdir()
    (folder / "two.yaml").write_text(
        "summary: two files\nprofiles:\n  cpu: {needs: {cpu: 1}, estimate: 1s, timeout: 1m}\n"
        "tests: [test_zero.py, test_one.py]\n"
    )
    (folder / "test_zero.py").write_text("def helper(): pass\n")
    (folder / "test_one.py").write_text("def test_one(): pass\n")
    for extra in ([], ["-n", "2"]):
        done = run_pytest(folder / "two.yaml", *extra, cwd=tmp_path)
        assert done.code != 0
        assert "test_zero.py is named by a suite and holds no test" in done.out


def test_a_bad_suite_file_is_a_collection_error_with_its_place(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[parrity: {}]")
    done = run_pytest(file, cwd=tmp_path)
    assert done.code == 2
    assert f"{file}:" in done.out
    assert "parity" in done.out


def test_yaml_outside_a_catalogue_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "pools.yaml").write_text("pools: {}\n")
    assert run_pytest(tmp_path / "configs", cwd=tmp_path).code == 5


def test_a_file_asked_for_by_name_is_a_suite_wherever_it_is(tmp_path: Path) -> None:
    file = tiny_suite(tmp_path, checks="[active: {dcp: 2}]", baseline="").rename(tmp_path / "mine.yaml")
    done = run_pytest(file, "--collect-only", "-q", cwd=tmp_path)
    assert done.code == 0, done.out
    assert "mine@cpu::active" in done.out


def test_each_report_rings_the_doorbell(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text("def test_a(): pass\ndef test_b(): pass\n")
    for workers in ([], ["-n", "2"]):
        read, write = os.pipe()
        # Also inside an xdist worker of another run, whose variables are inherited.
        extra = environment(HARNESS_DOORBELL_FD=str(write), PYTEST_XDIST_WORKER="gw0")
        subprocess.run(
            command(file, *workers),
            cwd=tmp_path,
            env=extra,
            pass_fds=[write],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        os.close(write)
        rings = os.read(read, 100)
        os.close(read)
        assert len(rings) == 6  # setup, call and teardown of two tests
