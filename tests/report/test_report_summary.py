"""What a user reads at the end of a run."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from report_runs import ACTIVE, PARITY, make_attempt, make_job, make_run
from rich.cells import cell_len
from rich.console import Console

from harness.report import counts, print_job, print_summary, render_job, render_summary, reproduce
from harness.verdict import CheckOutcome, CheckRecord


def printed(run, *, width: int = 80, terminal: bool = False, **options) -> str:
    out = io.StringIO()
    print_summary(run, Console(file=out, width=width, force_terminal=terminal, **options))
    return out.getvalue()


def block(text: str, job_id: str) -> str:
    """The lines about one job."""
    return next(part for part in text.split("\n\n") if f" {job_id}  " in part)


def test_the_first_line_counts_verdicts(full_run):
    first = printed(full_run).splitlines()[0]
    assert first == (
        "2 passed, 2 failed, 1 timed out, 1 flaky, 1 inconclusive, 1 infra, 1 not run, 1 skipped"
        "   run 20261129-145200-ab12   with lse-base planted"
    )


def test_gpu_minutes_interrupts_and_empty_selections_are_told():
    run = make_run(make_job("a", "passed", gpu_minutes=6.25), interrupted=True)
    assert printed(run).startswith("interrupted: 1 passed, 6.2 GPU-minutes")
    assert counts(make_run()).plain == "nothing was selected"


def test_a_failure_has_reason_log_and_command(full_run):
    assert block(printed(full_run), "dcp/red@cpu").splitlines() == [
        "✘ dcp/red@cpu  failed  12 s",
        "  active     4 ranks live at dcp 4",
        "  parity     failed  length 63, position 17: token 81 ≠ 80, logprob -1.2345 vs -1.2001",
        "             second line",
        "  log        reports/x/red/1/log",
        "  again      harness run dcp/red --profile cpu --fault lse-base",
    ]


def many(count: int, outcome: str, **fields) -> list[CheckRecord]:
    return [CheckRecord(name=f"{outcome}_{n}", outcome=CheckOutcome(outcome), **fields) for n in range(count)]


def test_tests_of_a_package_name_it_and_are_counted():
    subtests = many(18, "passed", figures={"subtest": {"n": "1"}})
    speaks = CheckRecord(name="row", outcome=CheckOutcome.PASSED, message="read 4 from ps")
    attempt = make_attempt(1, "passed", *many(17, "passed"), *subtests, speaks)
    run = make_run(make_job("units", "passed", attempt, engine_sha="sglang 0.5.18"))
    assert block(printed(run), "dcp/units@cpu").splitlines() == [
        "✔ dcp/units@cpu  passed",
        "  target     sglang 0.5.18",
        "  checks     17 passed, 18 subtests",
        "  row        read 4 from ps",
    ]


def test_a_commit_of_an_engine_is_no_target():
    attempt = make_attempt(1, "passed", ACTIVE)
    for sha in ("a" * 40, "a" * 40 + "+dirty", "version 0.1.0", None):
        run = make_run(make_job("x", "passed", attempt, engine_sha=sha))
        assert "target" not in printed(run)


def test_hundreds_of_failures_are_not_told_twice():
    red = many(540, "failed", message="no", figures={"subtest": {}})
    reason = "; ".join(f"failed_{n} failed: no" for n in range(12)) + "; 528 more"
    text = printed(make_run(make_job("x", "failed", make_attempt(1, "failed", *red), reason=reason)))
    assert "why" not in text
    assert "528 more: 528 failed\n" in text


def test_what_no_check_tells_is_told_once(full_run):
    text = printed(full_run)
    assert "why        job process was killed by SIGKILL; never ran: parity" in block(text, "dcp/killed@cpu")
    assert "why        deadline 'job' passed" in block(text, "dcp/slow@cpu")
    assert "why" not in block(text, "dcp/open@cpu")
    assert block(text, "dcp/no_pool@gpu").splitlines() == [
        "– dcp/no_pool@gpu  not run",
        "  why        needs 4×b200, and no pool has a b200",
    ]


def test_attempts_are_shown_where_there_was_more_than_one(full_run):
    text = printed(full_run)
    assert block(text, "dcp/recovered@cpu").splitlines()[1:3] == [
        "  attempt 1  infra  port probe: 1 taken",
        "  attempt 2  passed",
    ]
    assert "attempt" not in block(text, "dcp/green@cpu")


def test_red_jobs_come_last_and_the_order_of_jobs_does_not_matter(full_run):
    text = printed(full_run)
    order = re.findall(r"^. (dcp/\S+)", text, flags=re.M)
    assert order[-2:] == ["dcp/killed@cpu", "dcp/red@cpu"]
    assert order.index("dcp/green@cpu") < order.index("dcp/flaky@cpu") < order.index("dcp/slow@cpu")
    assert printed(make_run(*full_run.jobs[::-1], argv=full_run.argv)) == text


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_messages_wrap_under_themselves_and_nothing_is_lost(full_run, width):
    text = printed(full_run, width=width, terminal=True, color_system=None)
    kept = re.compile(r"^  (log|again) |^\d+ |^. dcp")
    for line in text.splitlines():
        assert cell_len(line) <= max(width, 33) or kept.match(line)
        assert line == line.rstrip()
    words = " ".join(text.split())
    assert "logprob -1.2345 vs -1.2001" in words or width == 20
    assert "harness run dcp/red --profile cpu --fault lse-base" in text


def test_a_pipe_gets_neither_colour_nor_wrapping(full_run):
    text = printed(full_run, width=40)
    assert "\x1b" not in text
    assert "length 63, position 17: token 81 ≠ 80, logprob -1.2345 vs -1.2001" in text


def test_no_color_is_respected(full_run, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search("\x1b\\[[0-9;]*3[0-9]", printed(full_run, terminal=True))


def test_messages_cannot_draw_on_the_terminal():
    evil = CheckRecord(name="a", outcome=CheckOutcome.FAILED, message="\x1b[2J[bold]\r\u202ex")
    text = printed(
        make_run(make_job("e", "failed", make_attempt(1, "failed", evil))), terminal=True, no_color=True
    )
    assert "\\x1b[2J[bold]\\r\\u202ex" in text


def test_thousands_of_checks_are_counted_and_only_the_others_listed():
    checks = [CheckRecord(name=f"t{n}", outcome=CheckOutcome.PASSED) for n in range(1600)]
    checks[7:7] = [CheckRecord(name=f"red{n}", outcome=CheckOutcome.FAILED, message="no") for n in range(20)]
    job = make_job("unit", "failed", make_attempt(1, "failed", *checks), reason="x")
    text = printed(make_run(job))
    assert "checks     1,600 passed" in text
    assert "  checks     failed  8 more: 8 failed\n" in text
    assert "  all        harness show 20261129-145200-ab12 dcp/unit@cpu\n" in text
    assert text.count("red") == 12
    elsewhere = printed(
        make_run(job, argv=("run", "x", "--reports=my reports")), width=30, terminal=True, color_system=None
    )
    assert "harness show 20261129-145200-ab12 dcp/unit@cpu --reports 'my reports'\n" in elsewhere


def test_errors_are_listed_before_what_failed_and_what_is_hidden_is_counted_by_kind():
    kinds = ["skipped"] * 2 + ["failed"] * 11 + ["passed"] * 30 + ["error"] * 3
    checks = [CheckRecord(name=f"t{n}", outcome=CheckOutcome(k), message=k) for n, k in enumerate(kinds)]
    text = printed(make_run(make_job("unit", "failed", make_attempt(1, "failed", *checks), reason="x")))
    assert text.count("error  error\n") == 3
    assert text.count("failed  failed\n") == 9
    assert text.index("error  error\n") < text.index("failed  failed\n")
    assert "  checks     failed  4 more: 2 failed, 2 skipped\n" in text
    many = [CheckRecord(name=f"t{n}", outcome=CheckOutcome.ERROR, message="no") for n in range(13)]
    text = printed(make_run(make_job("unit", "failed", make_attempt(1, "failed", *many), reason="x")))
    assert "  checks     error  1 more: 1 error\n" in text


def test_the_first_line_says_that_nothing_ran():
    absent = make_job("absent", "not_run", reason="no pool")
    assert printed(make_run(absent)).startswith("nothing ran: 1 not run ")
    assert printed(make_run(absent, interrupted=True)).startswith("interrupted: 1 not run ")
    declared = make_job("declared", "skipped", reason="waits")
    assert printed(make_run(absent, declared)).startswith("1 not run, 1 skipped ")


def test_the_command_runs_the_one_point_again():
    job = make_job("x", "failed", make_attempt(1, "failed", PARITY))
    job = replace(job, id="dcp/x@cpu[dcp=4,file=test/a b.py]")
    assert reproduce(job) == "harness run 'dcp/x[dcp=4,file=test/a b.py]' --profile cpu"


def test_a_long_message_is_cut_and_says_so():
    check = CheckRecord(
        name="a", outcome=CheckOutcome.ERROR, message="\n".join(f"line {n}" for n in range(30))
    )
    text = printed(make_run(make_job("a", "failed", make_attempt(1, "failed", check), reason="x")))
    assert "line 11\n" in text
    assert "line 12" not in text
    assert "… 18 more lines in the log" in text


def test_a_check_without_words_shows_its_key_figures():
    figures = {"gap": 3.1e-06, "prompts": 8, "ok": True, "worst": {"position": 1}, "none": None}
    check = CheckRecord(name="a", outcome=CheckOutcome.PASSED, figures=figures)
    text = printed(make_run(make_job("a", "passed", make_attempt(1, "passed", check))))
    assert "a          gap 3.1e-06, prompts 8, ok True\n" in text


def test_one_job_shows_everything(full_run):
    red = full_run.jobs[0]
    assert render_job(red, run=full_run).plain.splitlines() == [
        "✘ dcp/red@cpu  failed  12 s",
        "  matrix     dcp 4",
        "  engine     e1",
        f"  attempt 1  failed  {red.reason}  0.0 s on host",
        "  active     4 ranks live at dcp 4",
        "             dcp_size 4",
        "  parity     failed  length 63, position 17: token 81 ≠ 80, logprob -1.2345 vs -1.2001",
        "             second line",
        "             max_logprob_gap 0.0344",
        "  log        reports/x/red/1/log",
        "  again      harness run dcp/red --profile cpu --fault lse-base",
    ]
    out = io.StringIO()
    print_job(full_run, red, Console(file=out, width=80))
    assert out.getvalue() == render_job(red, run=full_run).plain + "\n"


def test_a_run_that_goes_on_says_what_runs_and_waits():
    run = make_run(make_job("busy", None, make_attempt(1, None, ACTIVE)), make_job("later", None))
    text = render_summary(run).plain
    assert text.startswith("1 running, 1 waiting")
    assert "● dcp/busy@cpu  running" in text
    assert "again" not in text


def test_the_command_repeats_what_changes_the_job_and_quotes_it():
    job = make_job("red", "failed", make_attempt(1, "failed", PARITY))
    argv = ["run", "dcp/*", "--fault", "a b", "--tags", "smoke", "--target=sglang", "--json", "x"]
    assert reproduce(job, argv=argv) == "harness run dcp/red --profile cpu --fault 'a b' --target sglang"


@pytest.mark.parametrize("outcome", ["passed", "underpowered", "failed"])
def test_a_message_of_several_lines_is_shown_whole_whatever_the_outcome(outcome):
    check = CheckRecord(
        name="accuracy", outcome=CheckOutcome(outcome), message="197 of 200 right\nfails below 181\nand more"
    )
    text = printed(make_run(make_job("a", "passed", make_attempt(1, "passed", check))))
    for line in ("197 of 200 right", "fails below 181", "and more"):
        assert line in text
