"""One rank: the step loop around scheduler and model.

Every step starts with one broadcast from rank 0, the `Control` message: the tokens sampled in the last step
and what the front has sent since. From it each rank's scheduler makes the same batch, so a step needs no
other agreement. Queries are answered between two steps, on each rank's own pipe: together the answers are one
consistent picture of the engine. Rank 0 blocks on its pipe only while there is nothing to compute; the others
then wait in the broadcast.
Failure rule: an error ends the process, and with it the engine; the zygote sees it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from harness.errors import UsageError
from harness.refengine.comm import Comms, Plumbing, make_communicators
from harness.refengine.config import EngineConfig
from harness.refengine.mailbox import Mailbox
from harness.refengine.outputs import Outputs
from harness.refengine.process import introduce
from harness.refengine.requests import Abort, Control, GenerateRequest, Progress, Query, QueryKind, Said
from harness.refengine.runner import ModelRunner
from harness.refengine.scheduler import Limits, Scheduler
from harness.refengine.tokenizer import EOS_ID
from harness.refengine.worker_state import live_state, told_sources, worker_state
from harness.topology import (
    EarlyRead,
    dcp_groups,
    early_reads,
    get_parallel,
    group_of,
    install_parallel,
    record_reads,
    tp_groups,
)
from harness.topology.state import KINDS


def run_rank(
    config: EngineConfig, *, rank: int, pipe: int, plumbing: Plumbing, faults: Sequence[str]
) -> NoReturn:
    """Serve as TP rank `rank` until killed. Raises UsageError where the model cannot be held."""
    introduce(f"rank {rank}/{config.tp} tp{config.tp} dcp{config.dcp}")
    torch.set_num_threads(1)
    mailbox = Mailbox(pipe)
    with record_reads() as reads:
        state = worker_state(config, rank)
        comms = make_communicators(config, rank=rank, plumbing=plumbing)
        parallel = config.parallel()
        groups = {"tp": group_of(tp_groups(parallel), rank)}
        if config.dcp > 1:
            groups["dcp"] = group_of(dcp_groups(parallel), rank)
        install_parallel(live_state(config, comms), groups)
        runner = ModelRunner(config, comms=comms, parallel=state)
        loop = RankLoop(config, comms=comms, runner=runner, mailbox=mailbox, faults=faults)
        comms.tp.barrier()
    loop.early_reads = early_reads(reads)
    mailbox.send({"type": Said.READY, "pid": os.getpid()})
    while True:
        loop.step()


class RankLoop:
    """What one rank does in every step. `num_steps` counts control messages, the same on all ranks."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        comms: Comms,
        runner: ModelRunner,
        mailbox: Mailbox,
        faults: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.comms = comms
        self.runner = runner
        self.mailbox = mailbox
        self.faults = list(faults)
        # What was read of the live topology before it was installed; known once the rank is ready.
        self.early_reads: list[EarlyRead] = []
        self.num_steps = 0
        self.scheduler = Scheduler(
            Limits(
                capacity=runner.capacity,
                layout=runner.layout,
                chunked_prefill_size=config.chunked_prefill_size,
                max_running_requests=config.max_running_requests,
                max_positions=runner.model.max_positions,
                eos_id=EOS_ID,
            )
        )
        self._outputs = Outputs()
        self._sampled: dict[str, int] = {}

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which speaks with the front and samples."""
        return self.comms.tp.rank == 0

    def step(self) -> None:
        """Agree on what happened, answer the front, compute one batch."""
        control = self._agree()
        self.num_steps += 1
        progress = self.scheduler.commit(control.sampled)
        queries = [message for message in control.messages if isinstance(message, Query)]
        for message in control.messages:
            if isinstance(message, GenerateRequest):
                self._add(message)
            elif isinstance(message, Abort):
                progress += self.scheduler.abort(message.rid)
        self.runner.pool.free_pages(self.scheduler.take_freed())
        self._tell(progress)
        for query in queries:
            self._answer(query)
        self._compute()

    def _agree(self) -> Control:
        """The control message of this step, the same on all ranks."""
        if not self.leads:
            return Control.from_bytes(self.comms.tp.broadcast_bytes(None))
        control = Control(sampled=self._sampled, messages=self.mailbox.collect(wait=self.scheduler.idle))
        self._sampled = {}
        self.comms.tp.broadcast_bytes(control.to_bytes())
        return control

    def _add(self, request: GenerateRequest) -> None:
        try:
            self.scheduler.add(request)
        except UsageError as refusal:
            if self.leads:
                self.mailbox.send({"type": Said.REFUSED, "rid": request.rid, "message": str(refusal)})

    def _tell(self, progress: list[Progress]) -> None:
        if self.leads and progress:
            self.mailbox.send({"type": Said.PROGRESS, "items": self._outputs.describe(progress)})

    def _compute(self) -> None:
        batch = self.scheduler.plan()
        if batch is None:
            return
        logits = self.runner.forward(batch, want_logits=self.leads)
        if self.leads:
            self._sampled = self._outputs.sample(batch, logits, self.scheduler.running)

    def _answer(self, query: Query) -> None:
        answers: dict[QueryKind, Callable[[], dict[str, Any]]] = {
            QueryKind.INFO: self._info,
            QueryKind.ROWS: self._rows,
            QueryKind.FLUSH: self._flush,
            # That there is an answer is the answer.
            QueryKind.PING: dict,
        }
        self.mailbox.send({"type": Said.ANSWER, "id": query.id, "answer": answers[query.kind]()})

    def _flush(self) -> dict[str, Any]:
        """There is no prefix cache to drop; what is asked is whether the pool is empty."""
        return {"idle": self.scheduler.idle}

    def _info(self) -> dict[str, Any]:
        """This rank's proof of what ran, read from the live sources and not from the configuration."""
        pool = self.runner.pool
        return {
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
            "max_total_num_tokens": self.runner.capacity.max_total_num_tokens,
            "faults": self.faults,
            "model_sha256": self.runner.model_sha256,
            "rank": {
                "tp_rank": self.comms.tp.rank,
                "pid": os.getpid(),
                "topology": live_topology(),
                "sources": told_sources(self.config, self.runner.parallel, self.early_reads),
                "collectives": {group.name: dict(group.counts) for group in (self.comms.tp, self.comms.dcp)},
                "kv_rows": pool.rows,
                "kv_rows_free": pool.num_free_rows,
                "kv_row_bytes": self.runner.row_bytes,
                "widened_page_size": self.runner.layout.widened_page_size,
                "step": self.num_steps,
            },
        }

    def _rows(self) -> dict[str, Any]:
        """Which token each row of this rank holds, and (rank 0) what the requests in flight have there."""
        pool = self.runner.pool
        requests = [
            {
                "rid": sequence.request.rid,
                "index": sequence.index,
                "tokens": sequence.tokens[: sequence.kv_len],
                "kv_len": sequence.kv_len,
                "pages": sequence.pages,
            }
            for sequence in self.scheduler.running.values()
        ]
        return {
            "step": self.num_steps,
            "requests": requests if self.leads else [],
            "rank": {
                "tp_rank": self.comms.tp.rank,
                "attn_dcp_rank": get_parallel().attn_dcp_rank,
                "rows": pool.held_rows(),
                "free_rows": pool.num_free_rows,
                "free_rows_poisoned": pool.check_poison(),
            },
        }


def live_topology() -> dict[str, Any]:
    """Everything `get_parallel()` answers in this process, as JSON."""
    live = get_parallel()
    topology: dict[str, Any] = {"dcp_enabled": live.dcp_enabled}
    for kind in KINDS:
        topology[f"{kind}_rank"] = getattr(live, f"{kind}_rank")
        topology[f"{kind}_size"] = getattr(live, f"{kind}_size")
    topology["dcp_group"] = live.dcp_group if live.dcp_enabled else [live.tp_rank]
    return topology
