"""One HTTP call in flight: the requests it put to the engine, and their answers as they grow.

`Call.progress()` yields a generation each time it has gained a token or ended; a plain answer just exhausts
it. However a call ends (answered, refused, client gone), `close` aborts what the engine still computes for
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HandoverError, UsageError
from harness.refengine.front.link import EngineGoneError, EngineLink, Event
from harness.refengine.front.text import AnswerText
from harness.refengine.metrics import Counters
from harness.refengine.requests import FinishType, GenerateRequest, Said, Scored
from harness.refengine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one generation starts from. Stop strings are the front's business; ranks know tokens only."""

    request: GenerateRequest
    stop: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Generation:
    """One answer. `output` grows token by token; `finish` is SGLang's finish_reason once it has ended."""

    index: int
    request: GenerateRequest
    text: AnswerText
    output: list[Scored] = field(default_factory=list)
    prompt: list[Scored] = field(default_factory=list)
    finish: dict[str, Any] | None = None

    @property
    def output_ids(self) -> list[int]:
        return [scored.token for scored in self.output]

    def take(self, event: Event) -> None:
        """Account for one progress item of rank 0."""
        if event.get("prompt_logprobs") is not None:
            entries = zip(self.request.tokens, event["prompt_logprobs"], event["prompt_top"], strict=True)
            self.prompt = [_scored(token, logprob, top) for token, logprob, top in entries]
        # Tokens after a stop string were under way already; they are no part of the answer.
        if event["token"] is not None and self.text.matched is None:
            self.output.append(_scored(event["token"], event["logprob"], event["top"]))
            self.text.push(event["token"])
        if event["finish"] is not None:
            self.text.finish()
            self.finish = self._reason(event["finish"])

    def _reason(self, finish: str | None) -> dict[str, Any]:
        if self.text.matched is not None:
            return {"type": FinishType.STOP, "matched": self.text.matched}
        match finish:
            case FinishType.LENGTH:
                return {"type": finish, "length": len(self.output)}
            case FinishType.STOP:
                return {"type": finish, "matched": self.output[-1].token}
        return {"type": finish, "message": "the request was aborted"}


class Call:
    """The generations of one HTTP call. Use `start`, then `progress` once, and `close` in a finally."""

    def __init__(
        self, link: EngineLink, prompts: Sequence[Prompt], *, tokenizer: Tokenizer, counters: Counters
    ) -> None:
        self.generations = [
            Generation(
                index=index,
                request=prompt.request,
                text=AnswerText(tokenizer.stream(), prompt.stop),
            )
            for index, prompt in enumerate(prompts)
        ]
        self._link = link
        self._counters = counters
        self._by_rid: dict[str, Generation] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    async def start(self) -> None:
        """Put all requests to the engine. Raises UsageError for a rid in flight, before any is sent."""
        self._link.submit([generation.request for generation in self.generations], self._events)
        self._by_rid = {generation.request.rid: generation for generation in self.generations}
        self._counters.requests += len(self._by_rid)
        await self._link.drain()

    async def progress(self) -> AsyncGenerator[Generation, None]:
        """Each generation that moved on, until all have ended. Raises UsageError where the engine refuses one
        (the others are aborted by `close`), HandoverError where another engine fails one, EngineGoneError where this
        one ends."""
        while self._by_rid:
            event = await self._events.get()
            if event.get("type") == Said.REFUSED:
                self._by_rid.pop(event["rid"], None)
                raise UsageError(event["message"])
            if event.get("type") == Said.FAILED:
                raise HandoverError(event["message"])
            if event.get("type") == "gone":
                raise EngineGoneError(event["message"])
            generation = self._by_rid.get(event["rid"])
            if generation is None:
                continue
            generation.take(event)
            if generation.finish is not None:
                del self._by_rid[event["rid"]]
                self._count(generation, generation.finish["type"])
            elif generation.text.matched is not None:
                # The answer ends when the engine confirms, so that its rows and its rid are free by then.
                self._link.abort(event["rid"], why="its answer is complete")
                continue
            yield generation

    def close(self) -> None:
        """Abort what has not ended. Safe to call more than once and while being cancelled."""
        for rid in self._by_rid:
            self._link.abort(rid, why="the call that it belonged to has ended")
        self._counters.aborted += len(self._by_rid)
        self._by_rid = {}

    def _count(self, generation: Generation, finish: str) -> None:
        self._counters.prompt_tokens += len(generation.request.tokens)
        self._counters.generation_tokens += len(generation.output)
        self._counters.aborted += finish == FinishType.ABORT


def _scored(token: int, logprob: float | None, top: Sequence[Sequence[Any]] | None) -> Scored:
    return Scored(token=token, logprob=logprob, top=tuple((float(lp), int(id_)) for lp, id_ in top or ()))
