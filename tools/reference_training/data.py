"""Training data: problems of *sums* as rows of tokens, in exactly the format that prompts have later.

A row holds several documents that do not see each other. A document is a problem after some worked examples,
or a drill of bare equations. Only answers are learned, since a question cannot be foretold. What follows the
answer of an example is not learned either: after its own answer the model must end, not go on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from itertools import chain, islice

import torch
from torch import Tensor

from harness.checks.tasks.base import Question
from harness.checks.tasks.prompts import few_shot_prompt
from harness.checks.tasks.sums import Problem, Split, problems
from harness.checks.tasks.sums_stories import LEAST, MOST, SMALL, Draws, Equation
from harness.refengine.tokenizer import EOS_ID
from harness.refengine.word_tokenizer import WordTokenizer
from reference_training.plan import SHARDS, Phase

# What becomes one token where the problems have it; digits stay alone.
_WORD = re.compile(r" [-+*/=] | ?[A-Za-z]+|#### |\n\n")
# Enough problems to meet every word of the generator dozens of times.
_SAMPLE = 1000
# Between the answer of an example and the next question; after the last answer comes EOS instead.
_GAP = "\n\n"


def make_tokenizer() -> WordTokenizer:
    """Its words are those of the training problems, in alphabetical order."""
    texts = (
        prompt_of(problem) + answer_of(problem) + _GAP for problem in islice(problems(Split.TRAIN), _SAMPLE)
    )
    return WordTokenizer(sorted(set(chain.from_iterable(map(_WORD.findall, texts)))))


def prompt_of(problem: Problem) -> str:
    """The question alone, its answer left open."""
    question = Question(number=0, question=problem.question, answer=problem.answer, expected=problem.expected)
    return few_shot_prompt((), question)


def answer_of(problem: Problem) -> str:
    """What the model has to write after the prompt."""
    return f" {problem.answer}"


@dataclass(slots=True)
class Document:
    """Tokens, and for each whether it is to be learned."""

    tokens: list[int] = field(default_factory=list)
    learned: list[bool] = field(default_factory=list)

    def add(self, tokens: list[int], *, learned: bool) -> None:
        self.tokens += tokens
        self.learned += [learned] * len(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One shard's part of a step: `tokens`, `learned` and `document` (which one a token is of), [rows, length]."""

    tokens: Tensor
    learned: Tensor
    document: Tensor


class RowMaker:
    """The rows of one shard, in order: it takes every `SHARDS`th problem of the training split."""

    def __init__(self, tokenizer: WordTokenizer, *, shard: int, seed: int) -> None:
        self._tokenizer = tokenizer
        self._bos = tokenizer.encode("")
        self._problems = islice(problems(Split.TRAIN), shard, None, SHARDS)
        self._draws = Draws(f"rows {seed} {shard}")
        self._waiting: Document | None = None
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of all tokens so far."""
        return self._digest.hexdigest()

    def take(self, phase: Phase) -> Rows:
        """The next rows."""
        rows = [self._row(phase) for _ in range(phase.rows)]
        tokens, learned, document = (torch.tensor(part) for part in zip(*rows, strict=True))
        self._digest.update(tokens.to(torch.int16).numpy().tobytes())
        return Rows(tokens=tokens, learned=learned, document=document)

    def _row(self, phase: Phase) -> tuple[list[int], list[bool], list[int]]:
        whole, owner = Document(), list[int]()
        for document in self._documents(phase):
            owner += [len(owner)] * len(document.tokens)
            whole.tokens += document.tokens
            whole.learned += document.learned
        # Less than the shortest drill: a few marks that nobody learns.
        rest = phase.length - len(owner)
        whole.add([EOS_ID] * rest, learned=False)
        return whole.tokens, whole.learned, owner + [phase.length] * rest

    def _documents(self, phase: Phase) -> list[Document]:
        """As many as fit in a row; the one that does not waits for the next, drills fill what is left."""
        documents, room = [], phase.length
        document = self._waiting or self._problem(phase)
        while len(document.tokens) <= room:
            documents.append(document)
            room -= len(document.tokens)
            document = self._problem(phase)
        self._waiting = document
        return [*documents, self._drill(room)]

    def _problem(self, phase: Phase) -> Document:
        """A problem with as many examples as were drawn and a row can hold."""
        count = 1 + self._draws.pick(phase.shots)
        parts = [self._parts(problem) for problem in islice(self._problems, count)]
        gap = self._encode(_GAP)
        while len(parts) > 1 and self._size(parts) > phase.length:
            parts.pop()
        document = Document()
        document.add(self._bos, learned=False)
        for prompt, answer in parts:
            document.add(prompt, learned=False)
            document.add(answer, learned=True)
            document.add(gap, learned=False)
        del document.tokens[-len(gap) :], document.learned[-len(gap) :]
        document.add([EOS_ID], learned=True)
        return document

    def _parts(self, problem: Problem) -> tuple[list[int], list[int]]:
        return self._encode(prompt_of(problem)), self._encode(answer_of(problem))

    def _size(self, parts: list[tuple[list[int], list[int]]]) -> int:
        gap = len(self._encode(_GAP))
        return 2 + sum(len(prompt) + len(answer) + gap for prompt, answer in parts) - gap

    def _drill(self, room: int) -> Document:
        """Bare equations in at most `room` tokens; only the results are learned."""
        document = Document()
        start = self._bos
        while True:
            left, result = str(draw_equation(self._draws)).rsplit(" ", 1)
            given, learned = self._encode(f"{left} "), self._encode(result)
            if len(document.tokens) + len(start) + len(given) + len(learned) > room:
                return document
            document.add(start + given, learned=False)
            document.add(learned, learned=True)
            start = self._encode("\n")

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)[len(self._bos) :]


def draw_equation(draws: Draws) -> Equation:
    """One of the kinds that worked answers are made of."""
    sign = draws.pick("+-*/")
    if sign in "*/":
        factor = draws.pick(SMALL)
        other = draws.pick(range(1, MOST // factor + 1))
        product = factor * other
        if sign == "/":
            return Equation(left=product, sign=sign, right=factor, result=other)
        return Equation(left=other, sign=sign, right=factor, result=product)
    whole = draws.pick(range(LEAST + 1, MOST + 1))
    part = draws.pick(range(LEAST, whole))
    if sign == "-":
        return Equation(left=whole, sign=sign, right=part, result=whole - part)
    return Equation(left=whole - part, sign=sign, right=part, result=whole)
