"""`harness eval` against engines that really run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from command_line import ROOT, harness


@contextmanager
def running(*args: str) -> Iterator[str]:
    """The URL of a server of ours, started as a user starts it."""
    with subprocess.Popen(
        [sys.executable, "-m", "harness", "engine", *args],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as engine:
        assert engine.stdout is not None
        try:
            yield engine.stdout.readline().split()[1]
        finally:
            engine.terminate()


def serving(*args: str) -> AbstractContextManager[str]:
    """The URL of a reference engine."""
    return running("serve", *args)


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str, str]]:
    """A healthy engine at dcp 2, a faulty one, and their baseline."""
    layout = ("--tp", "2", "--dcp", "2", "--kv-bytes", "131072")
    with ExitStack() as stack:
        yield (
            stack.enter_context(serving(*layout)),
            stack.enter_context(serving(*layout, "--fault", "lse-base")),
            stack.enter_context(serving("--tp", "2", "--kv-bytes", "131072")),
        )


@pytest.mark.parametrize(
    ("check", "params"),
    [
        ("active", ["dcp=2"]),
        ("sources", []),
        ("parity", ["lengths=[1, 9]"]),
        ("batch", ["sizes=[2, 2]"]),
        ("capacity", []),
        ("caps", []),
        ("rows", ["lengths=[1, 9]"]),
        ("decode_sanity", []),
        ("drained", []),
    ],
)
def test_every_check_runs_alone(check: str, params: list[str], urls: tuple[str, str, str]) -> None:
    healthy, _, baseline = urls
    flags = [part for param in params for part in ("-p", param)]
    done = harness("eval", check, "--url", healthy, "--baseline-url", baseline, "--json", *flags)
    assert done.code == 0, done.told
    body = json.loads(done.out)
    assert (body["schema"], body["name"], body["outcome"]) == (1, check, "passed")


def test_a_fault_is_exit_1_and_says_where(urls: tuple[str, str, str]) -> None:
    _, faulty, baseline = urls
    done = harness("eval", "parity", "--url", faulty, "--baseline-url", baseline, "-p", "lengths=[9]")
    assert done.code == 1
    assert "parity failed" in done.out
    assert "apart by" in done.out


def test_the_sources_of_eight_ranks_in_two_groups_agree() -> None:
    with serving("--tp", "8", "--dcp", "4") as url:
        done = harness("eval", "sources", "--url", url)
    assert done.code == 0, done.told
    assert "8 ranks: seed, ps and live agree on all 19 fields; no early read" in done.out


def test_a_state_that_was_built_too_early_is_told_with_its_place_in_the_code() -> None:
    with serving("--tp", "4", "--dcp", "4", "--fault", "ps-early") as url:
        done = harness("eval", "sources", "--url", url, "--json")
    assert done.code == 1
    told = "\n".join(json.loads(done.out)["figures"]["divergences"])
    assert (
        "ranks 0 to 3: attn_dcp_size: seed 4, ps 1, live 4: the KV pool is sized four times too small" in told
    )
    assert "rank 3: attn_dcp_rank: ps 0, live 3: a rank writing its neighbour's rows" in told
    assert "ps_early.py:" in told
    assert "read attn_dcp_size before init: 1 then, 4 later" in told


def test_a_pair_is_looked_at_through_its_router() -> None:
    with ExitStack() as stack:
        prefill = stack.enter_context(serving("--disaggregation-mode", "prefill"))
        decode = stack.enter_context(serving("--tp", "2", "--dcp", "2", "--disaggregation-mode", "decode"))
        router = stack.enter_context(running("route", "--prefill", prefill, "--decode", decode))
        transfer = harness("eval", "transfer", "--url", router, "-p", "lengths=[1, 9, 300]", "--json")
        drained = harness("eval", "drained", "--url", router)
        alone = harness("eval", "transfer", "--url", decode)
    assert transfer.code == 0, transfer.told
    assert json.loads(transfer.out)["figures"]["rows_owned"] == 310
    assert drained.code == 0, drained.told
    assert "KV rows of both sides free" in drained.out
    assert alone.code == 3
    assert "transfer unproven: no pair of engines is told of here: ask the router" in alone.out


def test_no_engine_of_somebody_else_is_killed(urls: tuple[str, str, str]) -> None:
    done = harness("eval", "interrupt", "--url", urls[0])
    assert done.code == 2
    assert "check interrupt kills the engines it runs on; allowed: in a suite" in done.err
    assert harness("eval", "active", "--url", urls[0], "-p", "dcp=2").code == 0


def test_a_baseline_that_is_none_is_refused(urls: tuple[str, str, str]) -> None:
    healthy, faulty, _ = urls
    done = harness("eval", "parity", "--url", healthy, "--baseline-url", faulty)
    assert done.code == 2
    assert "runs at dcp 2; a baseline runs at dcp 1" in done.err


def test_an_engine_that_is_not_there_is_named() -> None:
    done = harness("eval", "active", "--url", "http://127.0.0.1:9", "-p", "dcp=2")
    assert done.code == 1
    assert "active error: http://127.0.0.1:9 cannot be reached: nothing answers there" in done.out
    assert "refused" in done.out
    assert "died" not in done.out
    assert "Traceback" not in done.told
