"""The HTTP surface: SGLang's native endpoints, the OpenAI ones, and the proof of what ran.

Routes only translate: bodies to prompts, generations to answers, ranks' answers to one picture; errors become
answers in `error_answers`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from harness.errors import UsageError
from harness.refengine.config import DisaggregationMode
from harness.refengine.front import native
from harness.refengine.front.bootstrap import Pairing
from harness.refengine.front.call import Call, Generation, Prompt
from harness.refengine.front.error_answers import add_errors
from harness.refengine.front.fields import Strict, make_prompt
from harness.refengine.front.link import EngineLink, EngineSilentError
from harness.refengine.front.openai import ChatBody, CompletionBody, Shape
from harness.refengine.front.serving import AsciiJSONResponse, complete, stream
from harness.refengine.metrics import CONTENT_TYPE, Counters, render
from harness.refengine.requests import QueryKind, beyond_context
from harness.refengine.served_model import resolve_model
from harness.refengine.tokenizer import BOS_ID
from harness.refengine.transfer.handshake import EngineShape
from harness.refengine.wiring import Wiring

# How long ranks may take to reach a step boundary before they count as hanging; SGLang waits as long.
HEALTH_S = 20.0


class AbortBody(Strict):
    """`abort_all` aborts every request; `rid` one, or all of a list. SGLang's clients send both, one empty."""

    rid: str = ""
    abort_all: bool = False


class Front:
    """What routes share. One per process."""

    def __init__(self, wiring: Wiring, link: EngineLink) -> None:
        self.config = wiring.config
        self.launcher = wiring.launcher
        self.link = link
        served = resolve_model(wiring.config.model)
        self.model = served.config
        self.tokenizer = served.tokenizer
        self.model_name = wiring.config.served_model_name or wiring.config.model
        self.counters = Counters()
        self.shape = EngineShape.of(wiring.config, served)
        self._pairing = Pairing(self.shape)

    async def prompts(self, body: native.GenerateBody | ChatBody | CompletionBody) -> list[Prompt]:
        """This engine's part of what `body` asks for. Raises UsageError and HandoverError."""
        prompts = body.prompts(self.tokenizer)
        return await self._pairing.share(prompts, body.bootstraps(len(prompts)))

    def call(self, prompts: Sequence[Prompt]) -> Call:
        """Raises UsageError for a prompt that the model has no positions for."""
        for prompt in prompts:
            if refusal := beyond_context(prompt.request, self.model.max_positions):
                raise UsageError(refusal)
        return self._call(prompts, self.counters)

    def _call(self, prompts: Sequence[Prompt], counters: Counters) -> Call:
        return Call(self.link, prompts, tokenizer=self.tokenizer, counters=counters)

    async def answer(self, request: Request, prompts: Sequence[Prompt]) -> list[Generation]:
        return await complete(request, self.call(prompts))

    async def generates(self, request: Request) -> None:
        """Returns once a token has been generated for whomever. Raises EngineSilentError after HEALTH_S."""
        prompt = make_prompt(
            (BOS_ID,), rid=None, max_new_tokens=1, temperature=0.0, seed=0, ignore_eos=True, stop=None
        )
        # Beside many others the probe itself waits long for its turn; their progress is proof as good.
        ways = [
            asyncio.ensure_future(self.link.progress()),
            asyncio.ensure_future(complete(request, self._call([prompt], Counters()))),
        ]
        try:
            done, _ = await asyncio.wait(ways, timeout=HEALTH_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
        if not done:
            raise EngineSilentError(f"no token from any rank within {HEALTH_S:g} s")
        for way in done:
            way.result()

    async def server_info(self) -> dict[str, Any]:
        """The engine as its ranks describe it, all at one step boundary."""
        answers = await self.link.ask(QueryKind.INFO)
        config, lead = self.config, answers[0]
        return {
            "schema": 1,
            "model": config.model,
            "model_sha256": lead["model_sha256"],
            "dtype": config.dtype,
            "tp_size": config.tp,
            "dcp_size": config.dcp,
            "page_size": config.page_size,
            "interleave": config.interleave,
            "attention_backend": config.attention_backend,
            "dcp_comm_backend": config.dcp_comm_backend,
            "disaggregation_mode": config.disaggregation_mode,
            "disaggregation_transfer_backend": config.disaggregation_transfer_backend,
            "comm": config.comm,
            "device": config.device,
            "max_total_num_tokens": lead["max_total_num_tokens"],
            "max_total_tokens": config.max_total_tokens,
            "context_length": self.model.max_positions,
            "max_running_requests": config.max_running_requests,
            "chunked_prefill_size": config.chunked_prefill_size,
            "nonce": config.nonce,
            "launcher_pid": self.launcher,
            "front_pid": os.getpid(),
            "faults": lead["faults"],
            "running": lead["running"],
            "waiting": lead["waiting"],
            "step": lead["rank"]["step"],
            "ranks": [answer["rank"] for answer in answers],
        }

    async def kv_rows(self) -> dict[str, Any]:
        """Which token each physical row of each rank holds, at one step boundary."""
        answers = await self.link.ask(QueryKind.ROWS)
        return {
            "schema": 1,
            "page_size": self.config.page_size,
            "dcp_size": self.config.dcp,
            "interleave": self.config.interleave,
            "step": answers[0]["step"],
            "requests": answers[0]["requests"],
            "ranks": [answer["rank"] for answer in answers],
        }


def make_app(wiring: Wiring, link: EngineLink) -> FastAPI:
    """All routes over one engine."""
    app = FastAPI(title="harness reference engine", default_response_class=AsciiJSONResponse)
    front = Front(wiring, link)
    add_errors(app, front.counters)
    _add_generation(app, front)
    _add_openai(app, front)
    _add_state(app, front)
    return app


def _add_generation(app: FastAPI, front: Front) -> None:
    @app.post("/generate")
    async def generate(body: native.GenerateBody, request: Request) -> Response:
        prompts = await front.prompts(body)
        if body.stream:
            event = partial(native.stream_event, is_list=body.is_list)
            return await stream(request, front.call(prompts), event=event)
        answers = [native.answer(one) for one in await front.answer(request, prompts)]
        return AsciiJSONResponse(answers if body.is_list else answers[0])

    @app.post("/abort_request")
    async def abort(body: AbortBody) -> Response:
        if bool(body.rid) == body.abort_all:
            raise UsageError("give either rid or abort_all: true")
        for rid in front.link.rids(body.rid or None):
            front.link.abort(rid, why="it was aborted by /abort_request")
        return Response()


def _add_openai(app: FastAPI, front: Front) -> None:
    async def serve(body: ChatBody | CompletionBody, request: Request) -> Response:
        prompts = await front.prompts(body)
        rid = body.rid or prompts[0].request.rid
        shape = Shape(
            chat=isinstance(body, ChatBody),
            model=body.model or front.model_name,
            rid=rid,
            tokenizer=front.tokenizer,
        )
        if not body.stream:
            return AsciiJSONResponse(shape.answer(await front.answer(request, prompts)))
        call = front.call(prompts)
        sent = {generation.index: (0, 0) for generation in call.generations}

        def event(generation: Generation) -> dict[str, Any]:
            shown, scored = sent[generation.index]
            sent[generation.index] = (len(generation.text.text), len(generation.output))
            return shape.chunk(generation, shown=shown, scored=scored)

        def last() -> list[dict[str, Any]]:
            return [shape.usage_chunk(call.generations)] if body.wants_usage else []

        return await stream(request, call, event=event, last=last)

    @app.post("/v1/completions")
    async def completions(body: CompletionBody, request: Request) -> Response:
        return await serve(body, request)

    @app.post("/v1/chat/completions")
    async def chat(body: ChatBody, request: Request) -> Response:
        return await serve(body, request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        model = {
            "id": front.model_name,
            "object": "model",
            "created": 0,
            "owned_by": "harness",
            "root": front.config.model,
            "max_model_len": front.model.max_positions,
        }
        return {"object": "list", "data": [model]}


def _add_state(app: FastAPI, front: Front) -> None:
    @app.get("/health")
    async def health() -> Response:
        await front.link.ask(QueryKind.PING, limit_s=HEALTH_S)
        return Response()

    @app.get("/health_generate")
    async def health_generate(request: Request) -> Response:
        await front.generates(request)
        return Response()

    @app.api_route("/server_info", methods=["GET", "POST"])
    @app.api_route("/get_server_info", methods=["GET", "POST"])
    async def server_info() -> dict[str, Any]:
        return await front.server_info()

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        idle = all(answer["idle"] for answer in await front.link.ask(QueryKind.FLUSH))
        text = "Cache flushed." if idle else "Not flushed: requests are waiting or running."
        return PlainTextResponse(f"{text}\n", status_code=200 if idle else 400)

    @app.get("/disaggregation")
    async def disaggregation() -> dict[str, Any]:
        if front.config.disaggregation_mode is DisaggregationMode.NULL:
            raise HTTPException(404, "this engine answers alone (--disaggregation-mode null)")
        ports = front.link.transfer_ports
        return {"shape": front.shape.to_dict(), "ports": ports, "nonce": front.config.nonce}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(render(front.counters, info=await front.server_info()), media_type=CONTENT_TYPE)

    @app.get("/kv_rows")
    async def kv_rows() -> dict[str, Any]:
        if not front.config.kv_rows:
            raise HTTPException(404, "/kv_rows is off: start the engine with --kv-rows")
        return await front.kv_rows()
