"""`rows`: while requests run, every physical row of every rank holds the token that ownership says.

An ownership fault that permutes consistently changes no output, so only this check sees it; a PD peer that
relies on the layout would read its neighbour's tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from harness.checks.asks import RequestGroup
from harness.checks.base import (
    BaselineUse,
    CheckContext,
    CheckResult,
    failed,
    passed,
    random_prompt,
    unproven,
)
from harness.checks.ownership import expected_rows, rank_faults
from harness.engines import EngineClient, GenerateRequest, KVRows
from harness.errors import HarnessError, RequestRefusedError
from harness.suites import RowsParams

baseline_use = BaselineUse.NEVER

SHOWN = 4


def baseline_asks(params: RowsParams) -> list[RequestGroup]:
    return []


def run(params: RowsParams, context: CheckContext) -> CheckResult:
    try:
        context.client.kv_rows()
    except RequestRefusedError as error:
        return unproven(f"the engine does not tell what its KV rows hold: {error}")
    with _in_flight(context.client, params):
        pools = context.client.kv_rows()
    faults = _faults(pools, params=params)
    checked = sum(len(rank.rows) for rank in pools.ranks)
    figures = {
        "rows_checked": checked,
        "requests": [{"index": r.index, "kv_len": r.kv_len} for r in pools.requests],
        "rows_per_rank": [len(rank.rows) for rank in pools.ranks],
    }
    if faults:
        return failed(f"{len(faults)} faults: " + "; ".join(faults[:SHOWN]), faults=faults[:100], **figures)
    return passed(
        f"{checked} rows on {len(pools.ranks)} ranks hold the token that ownership says, "
        f"{len(pools.requests)} requests in flight",
        **figures,
    )


def _faults(pools: KVRows, *, params: RowsParams) -> list[str]:
    faults = []
    if len(pools.requests) != len(params.lengths):
        faults.append(f"{len(pools.requests)} requests in flight, expected {len(params.lengths)}")
    expected = expected_rows(pools)
    for rank in pools.ranks:
        told = rank_faults(tp_rank=rank.tp_rank, held=rank.rows, expected=expected[rank.attn_dcp_rank])
        faults += [sentence for _, sentence in told]
        if not rank.poisoned:
            faults.append(f"tp_rank {rank.tp_rank}: a free row was written")
    return faults


@contextmanager
def _in_flight(client: EngineClient, params: RowsParams) -> Iterator[None]:
    """Requests of every length, each past its first output token; aborted on the way out."""
    flights = [_Flight(client, length, params.max_new_tokens) for length in params.lengths]
    try:
        for flight in flights:
            flight.start()
        for flight in flights:
            flight.wait_first_token()
        yield
    finally:
        for flight in flights:
            flight.end()


class _Flight:
    """One streamed request in a thread of its own.

    A thread, since each stream has to be read while the others run.
    """

    def __init__(self, client: EngineClient, length: int, max_new_tokens: int) -> None:
        self._client = client
        self._rid = f"rows-{length}"
        self._request = GenerateRequest(
            input_ids=random_prompt(length, seed=length), max_new_tokens=max_new_tokens
        )
        self._first = threading.Event()
        self._error: HarnessError | None = None
        self._thread = threading.Thread(target=self._read, name=self._rid, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_first_token(self) -> None:
        """Raises what the stream raised; returns once a token has come. Ends with the check's deadline."""
        self._first.wait()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        if self._thread.is_alive():
            self._client.abort(self._rid)
        self._thread.join()

    def _read(self) -> None:
        try:
            for count in self._client.stream(self._request, rid=self._rid):
                if count > 0:
                    self._first.set()
        except HarnessError as error:
            self._error = error
        finally:
            self._first.set()
