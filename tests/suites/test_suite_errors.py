"""What a wrong suite file says: where, what was found, what is allowed, and everything at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_helpers import GOOD, errors_of, load, only_error, place, text_at, write

from harness.errors import SourceErrors, UsageError
from harness.suites import check_catalogue, load_catalogue, load_suite


def test_the_small_suite_is_right(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).name == "x"


GPU = """\
  gpu:
    needs: {gpu: b200, count: 4}
    estimate: 30m
    timeout: 90m
    engine: {kind: sglang, model: m, parallel: {tp: 4, dcp: 4}, launch_timeout: 25m}
"""
WITH_GPU = GOOD.replace("checks:", GPU + "checks:")
PAIR = """\
summary: a pair
profiles:
  gpu:
    needs: {gpu: b200, count: 8}
    estimate: 30m
    timeout: 2h
    prefill: {kind: sglang, model: m, parallel: {tp: 4}}
    decode: {kind: sglang, model: m, parallel: {tp: 4, dcp: 4}}
    router: {args: {policy: random}}
checks: [drained: {}]
"""


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        # keys
        ("summary:", "sumary:", "sumary: a ",
         "sumary: unknown key 'sumary'; did you mean 'summary'? (allowed: summary,"),
        ("timeout:", "timeot:", "timeot: 5m", "unknown key 'timeot'; did you mean 'timeout'?"),
        ("dcp: 4", "dpc: 4", "dpc: 4", "unknown key 'dpc'; did you mean 'dcp'?"),
        ("5m", "", "", "timeout: nothing is not a duration"),
        ("5m", "{cpu: 5m}", "{cpu: 5m}", "timeout: a mapping is not a duration"),
        ("tp: 4", "tq: 4", "tq: 4", "unknown key 'tq'; did you mean 'tp'? (allowed: tp, pp, dp, dcp"),
        ("checks:", "matrxi: {}\nchecks:", "matrxi: {}", "did you mean 'matrix'?"),
        ("  cpu:", "  cppu:", "cppu:", "unknown key 'cppu'; did you mean 'cpu'? (allowed: cpu, gpu)"),
        # durations
        ("30s", "30", "30", "estimate: 30 is not a duration; allowed: a number followed by s, m or h"),
        ("5m", "30min", "30min", "'30min' is not a duration; allowed: a number followed by s, m or h"),
        ("5m", "1:30", "1:30", "1:30 counts in sixties"),
        # types and choices
        ("{cpu: 1}", "[1]", "[1]", "needs: a list is not allowed here; allowed: a mapping"),
        ("{cpu: 1}", "", " ", "needs: nothing is not allowed here; allowed: a mapping"),
        ("tp: 4", "tp: '4'", "'4', dcp: ", "tp: '4' is not allowed here; allowed: a whole number"),
        ("tp: 4", "tp: true", "true, dcp:", "tp: true is not allowed here; allowed: a whole number"),
        ("tp: 4", "tp: 0", "0, dcp: 4}", "tp: 0 is not allowed here; allowed: 1 or more"),
        ("tp: 4", "tp: 100000", "100000, dc", "tp: 100000 is not allowed here; allowed: 4096 or less"),
        ("a small suite", "3", "3", "summary: 3 is not allowed here; allowed: text"),
        ("a small suite", "''", "''", "summary: '' is not allowed here; allowed: 1 character or more"),
        ("a small suite", "x" * 1001, "xxx", "allowed: 1000 characters or fewer"),
        ("kind: reference", "kind: refrence", "refrence, ",
         "kind: 'refrence' is unknown; did you mean 'reference'?"),
        ("kind: reference", "kind: 3", "3, model: ", "kind: 3 is unknown (allowed: reference, sglang, vllm)"),
        ("checks:", "tags: [Smoke]\nchecks:", "Smoke]",
         "tags[0]: 'Smoke' is not allowed here; allowed: a word of lower-case letters, digits"),
        ("checks:", "tags: smoke\nchecks:", "smoke", "tags: 'smoke' is not allowed here; allowed: a list"),
        ("checks:", "env: {A: 1}\nchecks:", "1}", "env.A: 1 is not allowed here; allowed: text (in quotes"),
        ("checks:", "env: {a-b: x}\nchecks:", "a-b: x}",
         "env.a-b: 'a-b' is not allowed here; allowed: the name of a variable"),
        # layouts
        ("dcp: 4", "dcp: 3", "{tp: 4, dc", "parallel: tp_size 4 is not divisible by dcp_size 3"),
        ("dcp: 4", "dcp: 4, pp: 2", "2}, args: ",
         "pp: 2 is not allowed: the reference engine has tp and dcp only"),
        ("page-size: 16", "page-size: 0", "0}}",
         "args.page-size: 0 is not allowed here; allowed: a whole number, 1 or more"),
        ("page-size: 16", "page-size: big", "big}}",
         "page-size: 'big' is not allowed here; allowed: a whole number"),
        ("page-size: 16", "interleave: 3", "3}}",
         "args.interleave: page_size 16 is not divisible by interleave 3"),
        # engine arguments
        ("page-size", "page_size", "page_size:", "'page_size' is no flag name; did you mean 'page-size'?"),
        ("page-size: 16", "tp-size: 8", "tp-size: 8",
         "'tp-size' is not allowed in args: the key 'parallel:' sets it"),
        ("page-size: 16", "x: {}", "{}}}", "args.x: a mapping; allowed: true, false, a number"),
        ("page-size: 16", "pagesize: 16", "pagesize: 16",
         "args.pagesize: the reference engine has no argument 'pagesize'; did you mean 'page-size'? (allowed: "),
        ("page-size: 16", "comm: pigeon", "pigeon}}",
         "args.comm: 'pigeon' is not allowed here; allowed: shm, gloo, nccl"),
        ("page-size: 16", "kv-bytes: true", "true}}", "args.kv-bytes: true is not allowed here; allowed: a whole"),
        ("page-size: 16", "kv-rows: 1", "1}}", "args.kv-rows: 1 is not allowed here; allowed: true or false"),
        ("page-size: 16", "seed: [1, 2]", "[1, 2]}}", "args.seed: a list is not allowed here; allowed: a whole"),
        ("page-size: 16", "fault: lse-base", "fault: ", "the reference engine has no argument 'fault'"),
        # needs and deadlines
        ("{cpu: 1}", "{gpu: b200, count: 4}", "{gpu: b200",
         "the cpu profile needs slots; allowed: {cpu: SLOTS}"),
        ("{cpu: 1}", "{}", "{}", "the cpu profile needs slots"),
        ("5m", "90s", "90s",
         "90s is too short: two launches of 30s and the estimate of 30s nest in it; allowed: more than 90s"),
        # engines
        ("{kind: reference", "{source: {}, kind: reference", "{}, kind: ",
         "source: none of them given; allowed: exactly one of"),
        ("{kind: reference", "{source: {path: a, repo: b}, kind: reference", "{path: a, ",
         "repo and path given"),
        ("{kind: reference", "{source: {path: a, ref: b}, kind: reference", "ref: b}, k",
         "ref: means nothing without repo"),
        # checks
        ("drained: {}", "drianed: {}", "drianed: {",
         "checks[0]: unknown check 'drianed'; did you mean 'drained'? (allowed: active"),
        ("drained: {}", "drained", "drained", "written 'drained: {}'"),
        ("drained: {}", "drained:", "",
         "checks[0].drained: nothing is not allowed here; allowed: a mapping of parameters"),
        ("drained: {}", "{}", "{}", "checks[0]: 0 keys is not a check; allowed: one check's name"),
        ("drained: {}", "7", "7", "checks[0]: 7 is not a check"),
        ("drained: {}", "drained: {wiat: 3s}", "wiat: 3s}",
         "unknown key 'wiat'; did you mean 'wait'? (allowed: wait, cpu, gpu)"),
        ("drained: {}", "drained: {wait: 3}", "3}", "checks[0].drained.wait: 3 is not a duration"),
        ("drained: {}", "drained: {cpu: 3}", "3}",
         "drained.cpu: 3 is not allowed here; allowed: a mapping of parameters"),
        ("drained: {}", "drained: {gpu: {wait: 3}}", "3}}", "wait: 3 is not a duration"),
        ("drained: {}", "drained: {wait: {cpu: 3s, gqu: 4s}}", "gqu: 4s}}",
         "unknown profile 'gqu'; did you mean 'gpu'?"),
        ("drained: {}", "drained: {}\n  - drained: {}", "drained: {", "'drained' is listed twice"),
        ("drained: {}", "active: {}", "{}", "active.dcp: is missing, and has no default"),
        ("drained: {}", "accuracy: {task: sums, questions: 50, escalate: 40}", "{task: sums, q",
         "'escalate' is 40; allowed: more than 'questions' (50)"),
        ("drained: {}", "accuracy: {task: sums, data: x}", "{task: sums, d", "'data' is GSM8K's file; allowed:"),
        ("drained: {}", "parity: {tokens: exakt}", "exakt}",
         "'exakt' is unknown; did you mean 'exact'? (allowed: exact, prefix)"),
        ("drained: {}", "batch: {sizes: []}", "[]}",
         "sizes: an empty list is not allowed here; allowed: 1 item or more"),
        ("drained: {}", "batch: {sizes: [0]}", "0]}", "sizes[0]: 0 is not allowed here; allowed: 1 or more"),
        ("drained: {}", "parity: {logprob: x}", "x}", "logprob: 'x' is not allowed here; allowed: a number"),
        ("  - drained: {}", "  drained: {}", "drained: {",
         "checks: a mapping is not allowed here; allowed: a list"),
        ("checks:\n  - drained: {}\n", "", "summary: a",
         "there is nothing to run; allowed: checks, tests or both, or source_tests"),
        # skips
        ("checks:", "skip: {until: 2027-01-01}\nchecks:", "{until: 20", "skip.reason: is missing"),
        ("checks:", "skip: {reason: x}\nchecks:", "{reason: x", "skip.until: is missing"),
        ("checks:", "skip: {reason: x, until: 2027-13-01}\nchecks:", "2027-13-01",
         "'2027-13-01' is no date; allowed: a date such as"),
        ("checks:", "skip: {reason: x, until: 20270101}\nchecks:", "20270101}", "20270101 is no date"),
        # baselines
        ("checks:", "baseline: {parallel: {dcp: 3}}\nchecks:", "{dcp: 3}}",
         "with the cpu profile: tp_size 4 is not divisible by dcp_size 3"),
        ("checks:", "baseline: {parallel: {}}\nchecks:", "{}}",
         "changes nothing; allowed: sizes such as dcp: 1"),
        ("checks:", "baseline: {parallel: {tp: 8}}\nchecks:", "{tp: 8}}",
         "with the cpu profile: the baseline runs at dcp 4; allowed: dcp: 1"),
        # tests
        ("checks:", "tests: [test_*.py]\nchecks:", "test_*.py]",
         "tests[0]: 'test_*.py' matches no Python file below"),
        ("checks:", "tests: [/etc/*.py]\nchecks:", "/etc/*.py]", "'/etc/*.py' is no pattern"),
        ("checks:", "tests: [a**]\nchecks:", "a**]", "'a**' "),
        ("checks:", "tests: [1]\nchecks:", "1]", "tests[0]: 1 is not allowed here; allowed: text"),
    ],
)  # fmt: skip
def test_one_mistake_one_error(tmp_path: Path, old: str, new: str, at: str, says: str) -> None:
    assert old in GOOD
    errors = errors_of(tmp_path, GOOD.replace(old, new, 1))
    assert says in "\n".join(str(error) for error in errors)
    (error,) = [error for error in errors if says in str(error)]
    assert text_at(error).startswith(at)
    line, column = place(error)
    assert str(error).startswith(f"{tmp_path}/x.yaml:{line}:{column}: ")
    # A misspelt required key is missing as well; nothing else may say more than one thing.
    assert all("is missing" in str(other) for other in errors if other is not error), errors


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("count: 4", "count: 2", "2}", "needs.count: 2 devices cannot hold 4 ranks"),
        ("{gpu: b200, count: 4}", "{cpu: 2}", "{cpu: 2}", "allowed: {gpu: KIND, count: DEVICES}"),
        ("{gpu: b200, count: 4}", "{gpu: b200}", "{gpu: b200", "allowed: {gpu: KIND, count: DEVICES}"),
        ("90m", "80m", "80m",
         "80m is too short: two launches of 25m and the estimate of 30m nest in it; allowed: more than 80m"),
        ("dcp: 4}, launch", "dcp: 4, pp: 2}, launch", "4}",
         "4 devices cannot hold 8 ranks (tp × pp × dp: 4 × 2 × 1)"),
        ("dcp: 4}, launch", "dcp: 4, dp: 2}, launch", "4}", "4 devices cannot hold 8 ranks"),
        ("checks:", "baseline: {parallel: {dcp: 1, pp: 2}}\nchecks:", "{dcp: 1, p",
         "with the gpu profile: 4 devices cannot hold 8 ranks"),
    ],
)  # fmt: skip
def test_devices(tmp_path: Path, old: str, new: str, at: str, says: str) -> None:
    error = only_error(tmp_path, WITH_GPU.replace(old, new, 1))
    assert says in str(error)
    assert text_at(error).startswith(at)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("", "sglang"),
        (", source: {version: 0.5.18}", "sglang@0.5.18"),
        (", source: {version: v0.5.18}", "sglang@v0.5.18"),
        (", source: {repo: sgl-project/sglang, ref: v0.5.18}", "sglang@v0.5.18"),
        (", source: {repo: sgl-project/sglang, ref: v0.5.23}", "sglang@v0.5.23"),
    ],
)  # fmt: skip
def test_a_cpu_profile_cannot_ask_sglang_for_dcp(source: str, target: str, tmp_path: Path) -> None:
    engine = f"kind: sglang, model: m{source}, launch_timeout: 1m"
    text = GOOD.replace("kind: reference, model: builtin:random-gqa", engine)
    error = only_error(tmp_path, text)
    assert text_at(error).startswith("4}, args")
    platforms = "cuda, hip" if "0.5.18" in target else "cuda, hip, npu, xpu"
    assert f"parallel.dcp: dcp_size is 4, but {target} builds DCP groups on {platforms} only" in str(error)
    assert str(error).endswith("only, not on cpu")
    assert errors_of(tmp_path, text.replace("dcp: 4", "dcp: 1")) == []
    # Another mistake in the file does not hide it.
    assert len(errors_of(tmp_path, text.replace("5m", "5x"))) == 2


def test_dp_attention_shares_the_ranks(tmp_path: Path) -> None:
    dp = WITH_GPU.replace("dcp: 4}, launch", "dcp: 2, dp: 2, dp_attention: true}, launch")
    assert errors_of(tmp_path, dp) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("parallel: {tp: 4}}", "parallel: {tp: 4, dcp: 2}}",
         "dcp 2 cannot hand its KV to a decode engine of dcp 4; allowed: 1 or 4"),
        ("prefill: {kind: sglang", "prefill: {kind: vllm", "'vllm' cannot hand its KV to 'sglang'"),
        ("count: 8", "count: 4", "4 devices cannot hold 8 ranks (tp × pp × dp: 4 × 1 × 1 + 4 × 1 × 1)"),
        ("    decode: {kind: sglang, model: m, parallel: {tp: 4, dcp: 4}}\n", "",
         "prefill and decode come together"),
        ("    router:", "    engine: {kind: sglang, model: m}\n    router:",
         "allowed: one engine, or the pair"),
    ],
)  # fmt: skip
def test_pairs(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert errors_of(tmp_path, PAIR) == []
    assert says in "\n".join(str(error) for error in errors_of(tmp_path, PAIR.replace(old, new)))


OWN_PAIR = """\
summary: a pair of our own
profiles:
  cpu:
    needs: {cpu: 2}
    estimate: 30s
    timeout: 5m
    prefill: {kind: reference, model: m, parallel: {tp: 2}, args: {page-size: 16, seed: 7}}
    decode: {kind: reference, model: m, parallel: {tp: 4, dcp: 4}, args: {seed: 7, interleave: 4}}
    router: {args: {request-timeout: 30}}
checks: [transfer: {}, drained: {}, interrupt: {}]
"""


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("model: m, parallel: {tp: 2}", "model: other, parallel: {tp: 2}", "other,",
         "prefill.model: 'other' cannot hand its KV to 'm'; allowed: the same on both sides"),
        ("page-size: 16", "page-size: 32", "32,",
         "prefill.args.page-size: is 32 with prefill and 16 with decode; allowed: the same"),
        ("seed: 7, inter", "dtype: bf16, seed: 7, inter", "bf16,",
         "decode.args.dtype: is 'fp32' with prefill and 'bf16' with decode"),
        ("seed: 7}", "seed: 8}", "8}", "prefill.args.seed: is 8 with prefill and 7 with decode"),
        ("page-size: 16, ", "disaggregation-transfer-backend: shm, ", "shm,",
         "is 'shm' with prefill and 'tcp' with decode"),
        ("tp: 2}", "tp: 4, dcp: 4}", "4}", "decode.args.interleave: is 1 with prefill and 4 with decode"),
        ("request-timeout", "request-timeot", "request-timeot", "the router has no argument"),
        ("timeout: 30}", "timeout: 30s}", "30s}", "'30s' is not allowed here; allowed: a number"),
        ("drained: {}, interrupt: {}", "interrupt: {}, drained: {}", "interrupt: {}, dr",
         "stands before drained, and starts engines anew"),
    ],
)  # fmt: skip
def test_pairs_of_our_own(tmp_path: Path, old: str, new: str, at: str, says: str) -> None:
    assert errors_of(tmp_path, OWN_PAIR) == []
    error = only_error(tmp_path, OWN_PAIR.replace(old, new))
    assert says in str(error)
    assert text_at(error).startswith(at)


def test_checks_of_pairs_need_a_pair(tmp_path: Path) -> None:
    for check in ("transfer", "interrupt"):
        error = only_error(tmp_path, GOOD + f"  - {check}: {{}}\n")
        assert f"{check}: looks at a pair of engines, and profile cpu has one" in str(error)
        assert text_at(error) == f"{check}: {{}}"


def test_the_baseline_of_a_pair_is_one_of_its_decode_engine(tmp_path: Path) -> None:
    """Eight experts' ranks are the prefill engine's own business."""
    pair = PAIR.replace("{tp: 4}}", "{tp: 4, ep: 4}}") + "baseline: {parallel: {tp: 2, dcp: 1}}\n"
    assert errors_of(tmp_path, pair) == []


def test_a_router_alone_and_checks_without_engine(tmp_path: Path) -> None:
    lines = [line for line in PAIR.splitlines() if not line.startswith(("    prefill", "    decode"))]
    assert "routes nothing" in only_error(tmp_path, "\n".join(lines)).message
    lines = [line for line in lines if not line.startswith("    router")]
    assert "has checks but no engine" in only_error(tmp_path, "\n".join(lines)).message


def test_plain_tests_need_their_estimate_only(tmp_path: Path) -> None:
    write(tmp_path, "", "test_a.py")
    profile = "profiles: {cpu: {needs: {cpu: 1}, estimate: 30s, timeout: 30s}}\n"
    text = f"summary: x\n{profile}tests: [test_*.py]\n"
    assert "30s does not exceed the estimate of 30s" in only_error(tmp_path, text).message
    assert errors_of(tmp_path, text.replace("timeout: 30s", "timeout: 31s")) == []


def test_no_profile(tmp_path: Path) -> None:
    assert (
        "there is no profile"
        in only_error(tmp_path, "summary: x\nprofiles: {}\nchecks: [drained: {}]\n").message
    )


@pytest.mark.parametrize("text", ["- a\n", "word\n", "---\n", "7\n"])
def test_a_suite_is_a_mapping(tmp_path: Path, text: str) -> None:
    error = only_error(tmp_path, text)
    assert "is not a suite; allowed: one mapping" in error.message
    assert place(error) == (1, 1)


def test_all_mistakes_of_a_file_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    wrong = (
        WITH_GPU.replace("summary: a small suite", "summary: a small suite\ntagz: []")
        .replace("estimate: 30s", "estimate: 30")
        .replace("parallel: {tp: 4, dcp: 4}, args", "parallel: {tp: 4, dcp: 3}, args")
        .replace("page-size", "page_size")
        .replace("timeout: 90m", "timeout: 50m")
        .replace("drained", "draned")
    )
    errors = errors_of(tmp_path, wrong)
    assert [error.mark.line for error in errors] == [2, 6, 8, 8, 12, 15]
    assert [place(error) for error in errors] == sorted(place(error) for error in errors)


def test_a_wrong_layout_shows_beside_a_wrong_engine_and_a_wrong_profile(tmp_path: Path) -> None:
    layout = GOOD.replace("dcp: 4", "dcp: 3")
    for wrong in (
        layout.replace("30s", "30"),
        layout.replace("summary", "sumary"),
        layout.replace("reference", "none"),
    ):
        assert "tp_size 4 is not divisible by dcp_size 3" in "\n".join(map(str, errors_of(tmp_path, wrong)))


def test_all_mistakes_of_a_catalogue_at_once(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "good.yaml")
    write(tmp_path, GOOD.replace("30s", "30"), "a/one.yaml")
    write(tmp_path, "\ta: 1", "b/two.yaml")
    write(tmp_path, GOOD, "c/three.yml")
    write(tmp_path, "no suite", "c/_base.yaml")
    with pytest.raises(SourceErrors) as caught:
        load_catalogue(tmp_path)
    files = [error.mark.file.relative_to(tmp_path).as_posix() for error in caught.value.errors]
    assert files == ["a/one.yaml", "b/two.yaml", "c/three.yml"]
    assert [str(error) for error in check_catalogue(tmp_path)] == [
        str(error) for error in caught.value.errors
    ]
    assert caught.value.exit_code == 2


def test_a_catalogue_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder of suites"):
        load_catalogue(tmp_path / "nothing")


def test_a_missing_suite_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceErrors, match=r"x\.yaml:1:1: cannot be read"):
        load_suite(tmp_path / "x.yaml", root=tmp_path)


def test_wrong_values_do_not_hide_mistakes_of_other_kinds(tmp_path: Path) -> None:
    """What YAML itself refuses and what the language refuses, of one file and its base, all at once."""
    write(
        tmp_path,
        "baseline: {parallel: {dcp: 1}}\nskip: {reason: x, reason: z, until: 2027-01-01}\n",
        "_base.yaml",
    )
    wrong = (
        GOOD.replace("summary: a small suite", "extends: _base.yaml\nsummary: !x a small suite\ntagz: []")
        .replace("30s", "1:30")
        .replace("5m", "5min")
        .replace("tp: 4, dcp: 4", "tp: 4, dcp: 3")
    )
    said = [f"{error.mark.file.name}:{error.mark.line} {error.field}" for error in errors_of(tmp_path, wrong)]
    assert said == [
        "_base.yaml:2 skip.reason",
        "x.yaml:2 summary",
        "x.yaml:3 tagz",
        "x.yaml:7 profiles.cpu.estimate",
        "x.yaml:8 profiles.cpu.timeout",
        "x.yaml:9 profiles.cpu.engine.parallel",
    ]


def test_two_missing_keys_of_one_mapping_are_two_mistakes(tmp_path: Path) -> None:
    assert {error.field for error in errors_of(tmp_path, "tags: []\n")} == {"summary", "profiles"}


def test_the_fields_of_what_yaml_refuses_are_named(tmp_path: Path) -> None:
    error = only_error(tmp_path, GOOD.replace("- drained: {}", "- drained: {wait: 1:30}"))
    assert str(error).startswith(f"{tmp_path}/x.yaml:9:21: checks[0].drained.wait: 1:30 counts in sixties")
    error = only_error(tmp_path, GOOD + "summary: again\n")
    assert error.field == "summary"
    assert error.message == "the key 'summary' was already written on line 1; allowed: each key once"
