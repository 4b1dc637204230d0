"""How many held-out problems a model solves, by greedy decoding of whole answers.

Strict: the answer must end by itself, and its last line must be `#### n` with the right number.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.checks.tasks import sums
from harness.checks.tasks.prompts import few_shot_prompt
from harness.refengine.tokenizer import EOS_ID
from harness.refengine.word_tokenizer import WordTokenizer
from reference_training.model import Cache, Decoder
from reference_training.processes import Group

# The longest worked answer of the task has 8 equations of 9 tokens.
_LIMIT = 96
_BATCH = 64


def accuracy(model: Decoder, tokenizer: WordTokenizer, group: Group, *, questions: int, shots: int) -> float:
    """Share of the first `questions` eval problems solved; every process takes a part of them."""
    task = sums.load()
    asked = task.questions(shots=shots)[:questions]
    own = asked[group.rank :: group.size]
    prompts = [tokenizer.encode(few_shot_prompt(task.shots(shots), question)) for question in own]
    answers = [tokenizer.decode(tokens) for tokens in _in_batches(model, prompts)]
    right = sum(
        text.rsplit("\n", 1)[-1] == f"#### {question.expected}"
        for text, question in zip(answers, own, strict=True)
    )
    return float(group.sum(torch.tensor(float(right)))) / len(asked)


def _in_batches(model: Decoder, prompts: Sequence[list[int]]) -> list[list[int]]:
    starts = range(0, len(prompts), _BATCH)
    return [_ended(answer) for start in starts for answer in generate(model, prompts[start : start + _BATCH])]


@torch.no_grad()
def generate(model: Decoder, prompts: Sequence[list[int]]) -> list[list[int]]:
    """Greedy answers, all of one length: until the last one has ended, or the limit. What follows an EOS is noise.

    Prompts are padded on the left; rotary positions are relative, so that their start does not matter.
    """
    longest = max(map(len, prompts))
    padding = torch.tensor([longest - len(prompt) for prompt in prompts])
    tokens = torch.tensor([[EOS_ID] * (longest - len(prompt)) + prompt for prompt in prompts])
    ended = torch.zeros(len(prompts), 1, dtype=torch.bool)
    cache, answers = Cache(), list[Tensor]()
    for _ in range(_LIMIT):
        hidden = model(tokens, _seen(padding, start=cache.length, length=tokens.shape[1]), cache)
        tokens = model.logits(hidden[:, -1]).argmax(dim=-1, keepdim=True)
        answers.append(tokens)
        ended |= tokens == EOS_ID
        if ended.all():
            break
    return torch.cat(answers, dim=1).tolist()


def _ended(answer: list[int]) -> list[int]:
    """Up to its EOS; nothing at all where it was cut off."""
    return answer[: answer.index(EOS_ID)] if EOS_ID in answer else []


def _seen(padding: Tensor, *, start: int, length: int) -> Tensor:
    """Which keys each of `length` queries from `start` on may see; padding sees itself, or it would be NaN."""
    queries, keys = torch.arange(start, start + length)[:, None], torch.arange(start + length)
    return (((keys >= padding[:, None, None]) & (keys <= queries)) | (keys == queries))[:, None]
