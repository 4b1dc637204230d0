"""However a shared request ends, and whoever of the two engines dies: a clear answer, and every row back."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_pair import Pair, pair, start_side, wait_drained
from engine_process import PATIENCE_S, RunningEngine, generate_body

from harness.refengine.config import DisaggregationMode, EngineConfig
from harness.refengine.launcher import EXIT_DIED

# 500 steps of 16 tokens: long enough to be caught in the middle, at either end.
LONG = [7] * 8000
PREFILL = EngineConfig(tp=2, page_size=4, chunked_prefill_size=16)
DECODE = EngineConfig(tp=4, dcp=4, page_size=4, chunked_prefill_size=16)
SIDES = ("prefill", "decode")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(PREFILL, DECODE, directory=tmp_path_factory.mktemp("two")) as two:
        yield two


def until(condition: Callable[[], Any]) -> Any:
    """Ask again and again; what `condition` returned at last."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never came"
    return found


def under_way(two: Pair) -> bool:
    """Whether some rows have arrived of a prompt of which others are still to be computed."""
    rows = two.decode.rows()
    return any(one.get("receiving") for one in rows["requests"]) and any(
        rank["rows"] for rank in rows["ranks"]
    )


def long_body(rid: str, **params: Any) -> dict[str, Any]:
    return generate_body(LONG, rid=rid, max_new_tokens=100, **params)


def assert_works(two: Pair) -> None:
    """Nothing is held, and the pair answers."""
    for side in two.sides:
        wait_drained(side)
    assert len(two.generate([1, 2, 3], max_new_tokens=4)["output_ids"]) == 4


def failed(response: httpx.Response) -> str:
    """The message of an answer that tells that the other engine failed it."""
    assert response.status_code == 502, response.text
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("HandoverError", 502)
    message: str = error["message"]
    return message


@pytest.mark.parametrize("side", SIDES)
def test_an_abort_in_the_middle_ends_both_halves(side: str, two: Pair) -> None:
    answers = dict(zip(SIDES, two.post(long_body("a")), strict=True))
    until(lambda: under_way(two))
    assert getattr(two, side).http.post("/abort_request", json={"rid": "a"}).status_code == 200
    aborted = answers.pop(side).result()
    assert aborted.json()["meta_info"]["finish_reason"]["type"] == "abort"
    (other,) = answers.values()
    message = failed(other.result())
    assert f"{side} rank" in message
    assert "it was aborted by /abort_request" in message
    assert_works(two)


def test_an_abort_of_what_is_already_answered_elsewhere_ends_it_here(two: Pair) -> None:
    first, second = two.post(generate_body([1], rid="a", max_new_tokens=5000))
    assert first.result().status_code == 200
    two.decode.http.post("/abort_request", json={"rid": "a"})
    assert second.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
    assert_works(two)


@pytest.mark.parametrize("first", SIDES)
def test_what_ends_before_the_other_half_has_come_ends_that_one_too(first: str, two: Pair) -> None:
    """A router sends both halves; one may be late, or be sent by a router that has gone since."""
    sent = two.body(long_body("a"))
    early = getattr(two, first)
    answer = two.clients.submit(early.http.post, "/generate", json=sent)
    until(lambda: early.info()["running"] + early.info()["waiting"])
    early.http.post("/abort_request", json={"rid": "a"})
    assert answer.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
    late = two.decode if first == "prefill" else two.prefill
    assert "it was aborted by /abort_request" in failed(late.http.post("/generate", json=sent))
    assert_works(two)


@pytest.mark.parametrize("side", SIDES)
def test_what_can_never_fit_on_one_side_ends_on_the_other(side: str, tmp_path: Path) -> None:
    small = {"max_total_tokens": 64}
    configs = {"prefill": PREFILL, "decode": DECODE}
    configs[side] = replace(configs[side], **small)
    with pair(configs["prefill"], configs["decode"], directory=tmp_path) as two:
        answers = dict(zip(SIDES, two.post(generate_body([1] * 80)), strict=True))
        refused = answers.pop(side).result()
        assert refused.status_code == 400
        assert "max_total_num_tokens 64" in refused.json()["error"]["message"]
        (other,) = answers.values()
        assert "max_total_num_tokens 64" in failed(other.result())
        assert_works(two)


def test_what_waits_for_room_on_the_decode_side_can_be_given_up_there(tmp_path: Path) -> None:
    with pair(PREFILL, replace(DECODE, max_running_requests=1), directory=tmp_path) as two:
        _, blocking = two.post(generate_body([1], rid="blocking", max_new_tokens=8000))
        until(lambda: two.decode.info()["running"])
        waiting, here = two.post(generate_body([1], rid="waiting"))
        until(lambda: two.decode.info()["waiting"])
        two.decode.http.post("/abort_request", json={"rid": "waiting"})
        assert here.result().json()["meta_info"]["finish_reason"]["type"] == "abort"
        assert "it was aborted by /abort_request" in failed(waiting.result())
        two.decode.http.post("/abort_request", json={"rid": "blocking"})
        blocking.result()
        assert_works(two)


def leave_while(side: RunningEngine, body: dict[str, Any], condition: Callable[[], Any]) -> None:
    """Send a request over a connection of its own, and close that once `condition` holds."""
    content = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", side.port), timeout=PATIENCE_S) as client:
        client.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        until(condition)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("side", SIDES)
def test_a_client_that_leaves_one_half_ends_both(side: str, stream: bool, two: Pair) -> None:
    body = two.body(long_body("a", stream=stream))
    other = two.decode if side == "prefill" else two.prefill
    answer = two.clients.submit(other.http.post, "/generate", json=body)
    leave_while(getattr(two, side), body, lambda: under_way(two))
    assert f"{side} rank" in failed(answer.result())
    assert_works(two)


def test_a_list_of_which_one_prompt_is_given_up_ends_as_a_whole(two: Pair) -> None:
    first, second = two.post(generate_body([LONG, [1, 2], LONG], rid="a", max_new_tokens=100))
    until(lambda: under_way(two))
    two.prefill.http.post("/abort_request", json={"rid": "a_2"})
    assert "it was aborted" in failed(second.result())
    failed(first.result())
    assert_works(two)


@pytest.mark.parametrize("victim", ["launcher", "front", "rank 0", "rank 1"])
@pytest.mark.parametrize("side", SIDES)
def test_an_engine_that_dies_fails_what_was_shared_and_can_be_replaced(
    side: str, victim: str, tmp_path: Path
) -> None:
    """Some requests in the middle of their handover, the last not begun: for two there is room on the decode side.

    Nobody but the silence tells the prefill side that nobody will ask for that one: here is no router to do so.
    """
    configs = {
        name: replace(one, transfer_timeout=5.0) for name, one in zip(SIDES, (PREFILL, DECODE), strict=True)
    }
    with pair(configs["prefill"], configs["decode"], directory=tmp_path) as two, ExitStack() as stack:
        killed = getattr(two, side)
        survivor = two.decode if side == "prefill" else two.prefill
        answers = [dict(zip(SIDES, two.post(long_body(f"r{i}")), strict=True)) for i in range(3)]
        until(lambda: under_way(two))
        os.kill(pid_of(killed, victim), signal.SIGKILL)
        for answer in answers:
            other = next(future for name, future in answer.items() if name != side)
            message = failed(other.result())
            assert f"{side} rank" in message or "cannot be reached" in message
            assert_gone(answer[side])
        wait_drained(survivor)
        again = tmp_path / "again"
        again.mkdir()
        mode = DisaggregationMode(side)
        setattr(two, side, stack.enter_context(start_side(configs[side], mode, directory=again)))
        assert_works(two)


def assert_gone(answer: Future[httpx.Response]) -> None:
    """The engine that was killed broke the connection off, or said with its last breath that it is gone (503), or what
    the other one told it of that (502)."""
    if not isinstance(answer.exception(), httpx.TransportError):
        assert answer.result().status_code in (502, 503)


def test_a_rank_whose_transfer_fails_ends_its_engine(two: Pair, tmp_path: Path) -> None:
    """Its step loop would go on, and every request wait for what never comes."""
    zygote = [sys.executable, "-m", "breaking_zygote"]
    with start_side(PREFILL, DisaggregationMode.PREFILL, directory=tmp_path, zygote=zygote) as broken:
        _, answer = replace(two, prefill=broken).post(generate_body([1, 2, 3]))
        assert "prefill rank" in failed(answer.result())
        assert broken.process.wait(PATIENCE_S) == EXIT_DIED
        log = broken.log.read_text()
        assert "RuntimeError: no rows today" in log
        assert re.search(r"^engine died: rank [01] exited with code 1$", log, re.MULTILINE)
    wait_drained(two.decode)


def pid_of(engine: RunningEngine, victim: str) -> int:
    if victim.startswith("rank"):
        return int(engine.pids["ranks"][int(victim.split()[1])])
    return int(engine.pids[victim])


@pytest.mark.parametrize("side", SIDES)
def test_an_engine_that_only_stops_moving_is_given_up_in_time(side: str, tmp_path: Path) -> None:
    """A rank that is stopped keeps its connections: nothing but the silence tells."""
    patient = {"transfer_timeout": 1.0}
    with pair(replace(PREFILL, **patient), replace(DECODE, **patient), directory=tmp_path) as two:
        stopped = getattr(two, side)
        answers = dict(zip(SIDES, two.post(long_body("a")), strict=True))
        until(lambda: under_way(two))
        os.kill(stopped.pids["ranks"][1], signal.SIGSTOP)
        survivor = two.decode if side == "prefill" else two.prefill
        message = failed(answers["decode" if side == "prefill" else "prefill"].result())
        # Its peers wait for it in their collectives: whichever was to send or to confirm next is named.
        assert f"{side} rank " in message and "for 1 s" in message
        wait_drained(survivor)
        os.kill(stopped.pids["ranks"][1], signal.SIGCONT)
        answers[side].result()
        assert_works(two)


def test_a_half_whose_other_half_never_comes_is_given_up_in_time(tmp_path: Path) -> None:
    patient = {"transfer_timeout": 0.5}
    with pair(replace(PREFILL, **patient), replace(DECODE, **patient), directory=tmp_path) as two:
        for side in two.sides:
            response = side.http.post("/generate", json=two.body(generate_body([1, 2])))
            assert "for 0.5 s" in failed(response)
        assert_works(two)


def test_prompts_that_are_not_the_same_are_not_mixed_up(two: Pair) -> None:
    """Two routers that drew the same room: each half belongs to another request."""
    body = two.body(generate_body([1] * 9))
    other = {**body, "input_ids": [2] * 11}
    answers = [
        two.clients.submit(side.http.post, "/generate", json=sent)
        for side, sent in zip(two.sides, (body, other), strict=True)
    ]
    for answer in answers:
        message = failed(answer.result())
        assert "11 tokens" in message
        assert "one of 9" in message
    assert_works(two)
