"""The training itself: gradients of both shards, one update, and now and then a look at held-out problems.

Every process holds the whole model and makes the same updates, so that none has to be sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.refengine.word_tokenizer import WordTokenizer
from reference_training.data import RowMaker, Rows
from reference_training.evaluate import accuracy
from reference_training.model import Decoder
from reference_training.muon import Muon
from reference_training.plan import SHARDS, TrainingPlan, model_config
from reference_training.processes import Group

_ADAM_BETAS = (0.9, 0.95)
# One strange row must not undo what was learned.
_LONGEST_GRADIENT = 1.0
# Looks at held-out problems per run, and problems per look.
_LOOKS = 16
_LOOK_QUESTIONS = 100


class Listener(Protocol):
    """Is told how it goes, on rank 0."""

    def step(self, done: int, loss: float) -> None: ...

    def look(self, done: int, loss: float, share: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The result; `data_sha256` is over the tokens of all rows of all shards."""

    model: Decoder
    data_sha256: str
    tokens: int


class Trainer:
    """One run of `plan` in one process of `group`; only the process that shows progress has a listener."""

    def __init__(
        self, plan: TrainingPlan, tokenizer: WordTokenizer, group: Group, listener: Listener | None = None
    ) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._group = group
        self._listener = listener
        torch.manual_seed(plan.seed)
        self._model = Decoder(model_config(len(tokenizer.words)))
        self._updates = _Updates(self._model)
        self._makers = [RowMaker(tokenizer, shard=shard, seed=plan.seed) for shard in group.shards]
        # Nothing is learned in so few steps that this is 0, so nothing is looked at.
        self._look_every = plan.steps // _LOOKS

    def run(self) -> Trained:
        """All steps; every process of the group calls this at once."""
        for step in range(self._plan.steps):
            loss = self._step(step)
            if self._listener:
                self._listener.step(step + 1, loss)
            if self._look_every and (step + 1) % self._look_every == 0:
                self._look(step + 1, loss)
        tokens = sum(
            SHARDS * phase.rows * phase.length for phase in map(self._plan.phase, range(self._plan.steps))
        )
        return Trained(model=self._model, data_sha256=self._data_sha256(), tokens=tokens)

    def _step(self, step: int) -> float:
        phase = self._plan.phase(step)
        own = sum(_gradient(self._model, maker.take(phase)) for maker in self._makers)
        gradient = self._group.sum(own) / SHARDS
        self._updates.apply(gradient[:-1], self._plan, step)
        return float(gradient[-1])

    def _look(self, done: int, loss: float) -> None:
        share = accuracy(self._model, self._tokenizer, self._group, questions=_LOOK_QUESTIONS, shots=0)
        if self._listener:
            self._listener.look(done, loss, share)

    def _data_sha256(self) -> str:
        digests = "".join(self._group.texts("".join(maker.digest for maker in self._makers)))
        return hashlib.sha256(digests.encode()).hexdigest()


def _gradient(model: Decoder, rows: Rows) -> Tensor:
    """All gradients of one shard as one vector, its mean loss at the end."""
    model.zero_grad()
    hidden = model(rows.tokens[:, :-1], _seen(rows.document[:, :-1]))
    learned = rows.learned[:, 1:]
    loss = cross_entropy(model.logits(hidden[learned]), rows.tokens[:, 1:][learned])
    loss.backward()
    return torch.cat([*(parameter.grad.flatten() for parameter in model.parameters()), loss.detach()[None]])


def _seen(document: Tensor) -> Tensor:
    """[rows, 1, length, length]: the tokens before in the same document."""
    length = document.shape[1]
    same = document[:, :, None] == document[:, None, :]
    return (same & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


class _Updates:
    """Muon for the matrices, AdamW for the tables, of one model."""

    def __init__(self, model: Decoder) -> None:
        self._parameters = list(model.parameters())
        self._muon = Muon(model.matrices())
        self._adam = torch.optim.AdamW(model.tables(), betas=_ADAM_BETAS, weight_decay=0.0)

    def apply(self, gradient: Tensor, plan: TrainingPlan, step: int) -> None:
        self._hand_out(gradient)
        nn.utils.clip_grad_norm_(self._parameters, _LONGEST_GRADIENT)
        share = plan.rate_share(step)
        for tables in self._adam.param_groups:
            tables["lr"] = plan.table_rate * share
        self._adam.step()
        self._muon.step(plan.matrix_rate * share)

    def _hand_out(self, gradient: Tensor) -> None:
        parts = gradient.split([parameter.numel() for parameter in self._parameters])
        for parameter, part in zip(self._parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
