"""extends, matrix, profiles, env, tests, skip: what a right suite file becomes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from suite_helpers import GOOD, errors_of, load, only_error, place, text_at, write

from harness.suites import (
    DrainedParams,
    EngineSpec,
    ParityParams,
    ProfileName,
    expand,
    load_catalogue,
    load_suite,
)

MATRIX = GOOD.replace("dcp: 4", "dcp: ${dcp}").replace(
    "page-size: 16", "page-size: ${page}, served-model-name: 'p${page}-${dcp}'"
)
MATRIX += "matrix: {dcp: [2, 4], page: [4, 16]}\n"


def test_one_job_with_what_execution_needs(tmp_path: Path) -> None:
    text = GOOD + "baseline: {parallel: {dcp: 1}}\nenv: {A: b}\npython: sglang\ntags: [smoke]\n"
    (job,) = expand(load(tmp_path, text), ProfileName.CPU)
    assert (job.id, job.suite, job.suite_path) == ("x@cpu", "x", tmp_path / "x.yaml")
    assert (job.estimate_s, job.timeout_s, job.launch_timeout_s) == (30, 300, 30)
    assert (job.needs.cpu, job.env, job.python, job.tags, job.matrix) == (
        1,
        {"A": "b"},
        "sglang",
        ("smoke",),
        {},
    )
    assert job.engine and job.baseline
    assert job.baseline == job.engine.with_parallel(dcp=1)
    assert job.baseline.parallel.config().dcp_size == 1
    assert expand(load(tmp_path, text), ProfileName.GPU) == []


def test_what_names_a_suite(tmp_path: Path) -> None:
    suite = load(
        tmp_path, GOOD + "owners: [a]\ntags: [b]\ntriggers: [pr]\nskip: {reason: x, until: 2001-01-01}\n"
    )
    assert (suite.name, suite.summary, suite.upstream) == ("x", "a small suite", None)
    assert (suite.owners, suite.tags, suite.triggers) == (("a",), ("b",), ("pr",))
    assert list(suite.profiles) == [ProfileName.CPU]
    assert suite.skip and suite.skip.until == date(2001, 1, 1)


def test_no_baseline_no_engine_pair(tmp_path: Path) -> None:
    (job,) = expand(load(tmp_path, GOOD), ProfileName.CPU)
    assert job.baseline is None
    pair = GOOD.replace(
        "    engine:",
        "    prefill: {kind: reference, model: builtin:random-gqa, parallel: {tp: 2}}\n    decode:",
    )
    (job,) = expand(load(tmp_path, pair + "baseline: {parallel: {dcp: 1}}\n"), ProfileName.CPU)
    assert job.engine is None
    assert job.decode and job.prefill and job.baseline
    assert (job.prefill.parallel.tp, job.decode.parallel.dcp, job.baseline.parallel.dcp) == (2, 4, 1)


def test_launch_timeout_defaults_by_kind() -> None:
    assert EngineSpec.model_validate({"kind": "reference", "model": "m"}).launch_timeout == 30
    assert EngineSpec.model_validate({"kind": "sglang", "model": "m"}).launch_timeout == 1500
    assert (
        EngineSpec.model_validate({"kind": "vllm", "model": "m", "launch_timeout": "1m"}).launch_timeout == 60
    )


# --- matrix


def test_a_matrix_makes_one_job_a_point_in_the_order_written(tmp_path: Path) -> None:
    jobs = expand(load(tmp_path, MATRIX), ProfileName.CPU)
    assert [job.id for job in jobs] == [f"x@cpu[dcp={dcp},page={page}]" for dcp in (2, 4) for page in (4, 16)]
    assert [(j.engine.parallel.dcp, j.engine.args["page-size"]) for j in jobs if j.engine] == [
        *((2, 4), (2, 16), (4, 4), (4, 16))
    ]
    assert jobs[0].engine and jobs[0].engine.args["served-model-name"] == "p4-2"
    assert jobs[3].matrix == {"dcp": 4, "page": 16}


def test_matrix_values_keep_their_type_and_dollars_can_be_written(tmp_path: Path) -> None:
    # flags of a real engine are its own business
    text = GOOD.replace("kind: reference", "kind: vllm").replace("5m", "2h")
    text = text.replace("page-size: 16", "a: '${flag}', b: 'is ${flag}', c: '$${flag}', d: $5")
    off, on = expand(load(tmp_path, text + "matrix: {flag: [false, true]}\n"), ProfileName.CPU)
    assert off.engine and on.engine
    assert on.engine.args == {"a": True, "b": "is true", "c": "${flag}", "d": "$5"}
    assert off.engine.args["a"] is False
    assert (off.id, on.id) == ("x@cpu[flag=false]", "x@cpu[flag=true]")


POINTS = "{dcp: [2, 4], page: [4, 16]}"


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        (
            "${dcp}",
            "${dpc}",
            "${dpc}}",
            "unknown matrix variable ${dpc}; did you mean 'dcp'? (allowed:",
        ),
        ("-${dcp}", "-${}", "'p${page}-${}'", "unknown matrix variable ${}"),
        (POINTS, "{x: [1], dcp: [2], page: [4]}", "x: [1]", "matrix.x: no value reads ${x}"),
        ("[2, 4]", "[3]", "{tp: 4, dcp: ${dcp}}", "tp_size 4 is not divisible by dcp_size 3"),
        (
            "[2, 4]",
            "[2, four]",
            "${dcp}}",
            "parallel.dcp: 'four' is not allowed here; allowed: a whole",
        ),
        ("[2, 4]", "[2, 2]", "2], page", "matrix.dcp[1]: 2 is listed twice"),
        ("[2, 4]", "[]", "[], page", "matrix.dcp: an empty list; allowed: a list of values"),
        ("[2, 4]", "2", "2, page", "matrix.dcp: 2; allowed: a list of values"),
        ("[2, 4]", "[[2]]", "[2]], page", "matrix.dcp[0]: a list; allowed: a number"),
        ("{dcp: [2", "{DCP: [1], dcp: [2", "DCP: [1]", "'DCP' is no variable; allowed: lower case"),
        (POINTS, "{}", "{}", "matrix: an empty mapping is no matrix"),
        (POINTS, "[2]", "[2]", "matrix: a list is no matrix"),
        (
            "[4, 16]",
            str(list(range(300))),
            "{dcp: [2, 4], page: [0",
            "matrix: 600 points; allowed: 256 or fewer",
        ),
    ],
)
def test_wrong_matrices(tmp_path: Path, old: str, new: str, at: str, says: str) -> None:
    assert old in MATRIX
    errors = [error for error in errors_of(tmp_path, MATRIX.replace(old, new, 1)) if says in str(error)]
    (error,) = errors
    assert text_at(error).startswith(at)


def test_a_variable_without_matrix(tmp_path: Path) -> None:
    error = only_error(tmp_path, GOOD.replace("dcp: 4", "dcp: ${dcp}"))
    assert error.message == "unknown matrix variable ${dcp} (the suite has no matrix)"


def test_one_mistake_at_all_points_is_reported_once(tmp_path: Path) -> None:
    assert "30 is not a duration" in only_error(tmp_path, MATRIX.replace("30s", "30")).message


# --- extends


def test_extends_merges_mappings_and_replaces_lists(tmp_path: Path) -> None:
    write(
        tmp_path,
        GOOD + "tags: [a, b]\nenv: {A: base, B: base}\nskip: {reason: x, until: 2027-01-01}\n",
        "_base.yaml",
    )
    child = """\
        extends: ../_base.yaml
        summary: child
        tags: [c]
        env: {B: child}
        skip: null
        profiles: {cpu: {engine: {parallel: {dcp: 2}}}}
    """
    write(tmp_path, "\n".join(line[8:] for line in child.splitlines()), "dcp/x.yaml")
    catalogue = load_catalogue(tmp_path)
    assert catalogue.names == ("dcp/x",)
    (suite,) = catalogue.suites
    (job,) = expand(suite, ProfileName.CPU)
    assert (suite.summary, suite.tags, suite.skip, job.env) == (
        "child",
        ("c",),
        None,
        {"A": "base", "B": "child"},
    )
    assert job.engine and (job.engine.parallel.tp, job.engine.parallel.dcp) == (4, 2)
    assert [check.name for check in job.checks] == ["drained"]


def test_errors_point_at_the_file_a_value_came_from(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("30s", "30"), "_base.yaml")
    error = only_error(tmp_path, "extends: _base.yaml\nsummary: child\n")
    assert (error.mark.file.name, place(error)) == ("_base.yaml", (5, 15))
    write(tmp_path, GOOD, "_base.yaml")
    error = only_error(tmp_path, "extends: _base.yaml\nprofiles: {cpu: {estimate: 9}}\n")
    assert (error.mark.file.name, place(error)) == ("x.yaml", (2, 28))


@pytest.mark.parametrize(
    ("extends", "says"),
    [
        ("x.yaml", "leads back to a file that is already in the chain"),
        ("_loop.yaml", "leads back to a file that is already in the chain"),
        ("nothing.yaml", "'nothing.yaml' does not exist"),
        ("[a]", "a list is not a file"),
        ("''", "'' is not a file"),
        ("x" * 5000, "does not exist"),
    ],
)
def test_wrong_extends(tmp_path: Path, extends: str, says: str) -> None:
    write(tmp_path, "extends: x.yaml\n", "_loop.yaml")
    error = only_error(tmp_path, f"summary: x\nextends: {extends}\n")
    assert says in error.message
    assert error.field == "extends"


def test_a_long_chain(tmp_path: Path) -> None:
    for level in range(1, 10):
        write(tmp_path, f"extends: _{level + 1}.yaml\n", f"_{level}.yaml")
    write(tmp_path, GOOD, "_7.yaml")
    assert errors_of(tmp_path, "extends: _1.yaml\n") == []
    write(tmp_path, GOOD, "_8.yaml")
    write(tmp_path, "extends: _8.yaml\n", "_7.yaml")
    error = only_error(tmp_path, "extends: _1.yaml\n")
    assert "the chain is longer than 8 files" in error.message
    assert error.mark.file.name == "_7.yaml"


# --- per-profile values


def test_values_and_overlays_by_profile(tmp_path: Path) -> None:
    overlays = "cpu: {model: m, logprob: 0.001}, gpu: {seed: {cpu: 1, gpu: 2}}"
    check = f"parity: {{{overlays}, logprob: {{gpu: 0.5}}, tokens: prefix}}"
    gpu = "  gpu:\n    needs: {gpu: b200, count: 4}\n    estimate: 1m\n    timeout: 2h\n"
    gpu += "    engine: {kind: vllm, model: m, parallel: {tp: 4}}\n"
    suite = load(tmp_path, GOOD.replace("drained: {}", check).replace("checks:", gpu + "checks:"))
    (cpu,), (real,) = expand(suite, ProfileName.CPU), expand(suite, ProfileName.GPU)
    assert cpu.checks[0].params == ParityParams(model="m", logprob=0.001, tokens="prefix")
    assert real.checks[0].params == ParityParams(seed=2, logprob=0.5, tokens="prefix")


def test_an_overlay_of_a_profile_that_is_not_there_is_checked_and_dropped(tmp_path: Path) -> None:
    suite = load(tmp_path, GOOD.replace("drained: {}", "drained: {wait: 1s, gpu: {wait: 1m}}"))
    (job,) = expand(suite, ProfileName.CPU)
    assert job.checks[0].params == DrainedParams.model_validate({"wait": "1s"})
    assert "unknown key 'wiat'" in str(
        only_error(tmp_path, GOOD.replace("drained: {}", "drained: {gpu: {wiat: 1m}}"))
    )


# --- skip and tests


def test_a_skip_holds_through_its_last_day(tmp_path: Path) -> None:
    suite = load(tmp_path, GOOD + "skip: {reason: broken upstream, until: 2027-01-01}\n")
    (on_the_day,) = expand(suite, ProfileName.CPU, today=date(2027, 1, 1))
    (after,) = expand(suite, ProfileName.CPU, today=date(2027, 1, 2))
    assert on_the_day.skip and on_the_day.skip.reason == "broken upstream"
    assert after.skip is None


def test_without_a_day_it_is_today(tmp_path: Path) -> None:
    (held,) = expand(load(tmp_path, GOOD + "skip: {reason: x, until: 9999-12-31}\n"), ProfileName.CPU)
    (over,) = expand(load(tmp_path, GOOD + "skip: {reason: x, until: 2001-01-01}\n"), ProfileName.CPU)
    assert held.skip is not None
    assert over.skip is None


def test_test_files_are_found_once_and_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    for name in ("base/test_a.py", "base/test_b.py", "base/notes_test.txt", "child/test_c.py"):
        write(tmp_path, "", name)
    (tmp_path / "base/test_d.py").mkdir()
    write(
        tmp_path, GOOD + "tests: [test_b.py, 'test_*.py', '*_test.*', '../child/*.py']\n", "base/_base.yaml"
    )
    errors = errors_of(tmp_path, "extends: base/_base.yaml\n")
    assert [error.message for error in errors] == [f"'*_test.*' matches no Python file below {tmp_path}/base"]
    write(tmp_path, GOOD + "tests: [test_b.py, 'test_*.py', '../child/*.py']\n", "base/_base.yaml")
    suite = load_suite(write(tmp_path, "extends: ../base/_base.yaml\n", "child/x.yaml"), root=tmp_path)
    (job,) = expand(suite, ProfileName.CPU)
    names = [path.resolve().relative_to(tmp_path.resolve()).as_posix() for path in job.tests]
    assert names == ["base/test_b.py", "base/test_a.py", "child/test_c.py"]
