"""One rank: the step loop around scheduler and model.

Every step starts with one broadcast from rank 0, the `Control` message: the tokens sampled in the last step
and what the front has sent since. From it each rank's scheduler makes the same batch, so a step needs no
other agreement. Queries are answered between two steps, on each rank's own pipe: together the answers are one
consistent picture of the engine. Rank 0 blocks on its pipe only while there is nothing to compute; the others
then wait in the broadcast. What a rank does for requests shared with another engine is its side's (`handover`).
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
from harness.refengine.handover import Alone, make_side
from harness.refengine.mailbox import Mailbox
from harness.refengine.outputs import Outputs
from harness.refengine.process import introduce
from harness.refengine.requests import (
    Abort,
    Begin,
    Bound,
    Control,
    GenerateRequest,
    Message,
    Progress,
    Query,
    QueryKind,
    Release,
    Said,
)
from harness.refengine.runner import ModelRunner
from harness.refengine.scheduler import Limits, Running, Scheduler, Stage
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
        side = make_side(
            config, runner=runner, tp_rank=rank, tell=lambda event: mailbox.send(event.to_dict())
        )
        loop = RankLoop(config, comms=comms, runner=runner, side=side, mailbox=mailbox, faults=faults)
        comms.tp.barrier()
    loop.early_reads = early_reads(reads)
    mailbox.send({"type": Said.READY, "pid": os.getpid(), "port": side.port})
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
        side: Alone,
        mailbox: Mailbox,
        faults: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.comms = comms
        self.runner = runner
        self.side = side
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
        progress = self._commit(control.sampled)
        for message in control.messages:
            progress += self._take(message)
        self.runner.pool.free_pages(self.scheduler.take_freed())
        self._tell(progress)
        for message in control.messages:
            if isinstance(message, Query):
                self._answer(message)
        self._compute()

    def _agree(self) -> Control:
        """The control message of this step, the same on all ranks."""
        if not self.leads:
            return Control.from_bytes(self.comms.tp.broadcast_bytes(None))
        # What waits then, for pages or for another engine, goes on with what the front has to say.
        idling = self.scheduler.planned is None
        control = Control(sampled=self._sampled, messages=self.mailbox.collect(wait=idling))
        self._sampled = {}
        self.comms.tp.broadcast_bytes(control.to_bytes())
        return control

    def _commit(self, sampled: dict[str, int]) -> list[Progress]:
        """Account for the batch in flight, and hand on what it has computed."""
        batch = self.scheduler.planned
        progress = self.scheduler.commit(sampled)
        for chunk in batch.chunks if batch else ():
            if sequence := self.scheduler.running.get(chunk.rid):
                self.side.computed(sequence, chunk)
        return progress

    def _take(self, message: Message) -> list[Progress]:
        """Act on what the front has sent. Queries are answered once all has been acted on."""
        match message:
            case GenerateRequest():
                self._add(message)
            case Bound(rid=rid):
                self.scheduler.bind(rid)
            case Begin(rid=rid, first=first):
                if self.leads:
                    self._outputs.accept(rid, first)
                return self.scheduler.begin(rid, first["token"])
            case Release(rid=rid):
                return self.scheduler.release(rid)
            case Abort(rid=rid, why=why):
                return self._abort(rid, why=why)
        return []

    def _add(self, request: GenerateRequest) -> None:
        try:
            self.scheduler.add(request)
        except UsageError as refusal:
            self.side.refused(request, why=str(refusal))
            if self.leads:
                self.mailbox.send({"type": Said.REFUSED, "rid": request.rid, "message": str(refusal)})
        else:
            self.side.queued(request)

    def _abort(self, rid: str, *, why: str) -> list[Progress]:
        if request := self.scheduler.find(rid):
            self.side.given_up(request, held=rid in self.scheduler.running, why=why)
        return self.scheduler.abort(rid)

    def _tell(self, progress: list[Progress]) -> None:
        items = self._outputs.describe(progress) if self.leads else []
        for place, one in enumerate(progress):
            sequence = self.scheduler.running.get(one.rid)
            if sequence is not None and sequence.stage is Stage.HANDING_OVER:
                self.side.completed(sequence.request, first=items[place] if self.leads else None)
        if items:
            self.mailbox.send({"type": Said.PROGRESS, "items": items})

    def _compute(self) -> None:
        batch = self.scheduler.plan()
        for sequence in self.scheduler.take_admitted():
            self.side.admitted(sequence)
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
        pool, transfer = self.runner.pool, self.side.stats()
        return {
            "running": len(self.scheduler.running),
            "waiting": self.scheduler.num_waiting,
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
                **({} if transfer is None else {"transfer": transfer}),
            },
        }

    def _rows(self) -> dict[str, Any]:
        """Which token each row of this rank holds, and (rank 0) what the requests in flight have there."""
        pool = self.runner.pool
        requests = [_in_flight(sequence) for sequence in self.scheduler.running.values()]
        with self.side.between_blocks():
            rank = {
                "tp_rank": self.comms.tp.rank,
                "attn_dcp_rank": get_parallel().attn_dcp_rank,
                "rows": pool.held_rows(),
                "free_rows": pool.num_free_rows,
                "free_rows_poisoned": pool.check_poison(),
            }
        return {"step": self.num_steps, "requests": requests if self.leads else [], "rank": rank}


def _in_flight(sequence: Running) -> dict[str, Any]:
    """A request that holds pages, and what of it counts as held in them."""
    receiving = {"receiving": True} if sequence.stage is Stage.RECEIVING else {}
    return {
        "rid": sequence.request.rid,
        "index": sequence.index,
        "tokens": sequence.tokens[: sequence.kv_len],
        "kv_len": sequence.kv_len,
        "pages": sequence.pages,
        **receiving,
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
