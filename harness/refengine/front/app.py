"""The HTTP surface: SGLang's native endpoints, the OpenAI ones, and the proof of what ran.

Routes only translate: bodies to prompts, generations to answers, ranks' answers to one picture. Every error
has the shape {"error": {"message", "type", "code"}}: 400 for what the caller got wrong, 503 while the engine
is not (or no longer) there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from harness.errors import UsageError
from harness.refengine.front import native
from harness.refengine.front.call import Call, Generation, Prompt
from harness.refengine.front.fields import NonEmpty, Strict, make_prompt
from harness.refengine.front.link import EngineGoneError, EngineLink
from harness.refengine.front.openai import ChatBody, CompletionBody, Shape
from harness.refengine.front.serving import AsciiJSONResponse, ClientGoneError, complete, stream
from harness.refengine.metrics import CONTENT_TYPE, Counters, render
from harness.refengine.model import resolve_model
from harness.refengine.requests import FinishType, QueryKind
from harness.refengine.tokenizer import BOS_ID
from harness.refengine.wiring import Wiring

# nginx's code for a client that closed the connection; nobody reads it.
CLIENT_CLOSED_REQUEST = 499
# More wrong fields than this help nobody.
MAX_ERRORS_TOLD = 5


class AbortBody(Strict):
    """`abort_all` aborts every request; `rid` one."""

    rid: NonEmpty | None = None
    abort_all: bool = False


class Front:
    """What routes share. One per process."""

    def __init__(self, wiring: Wiring, link: EngineLink) -> None:
        self.config = wiring.config
        self.launcher = wiring.launcher
        self.link = link
        self.model = resolve_model(wiring.config.model)
        self.model_name = wiring.config.served_model_name or wiring.config.model
        self.counters = Counters()

    def call(self, prompts: Sequence[Prompt]) -> Call:
        self.counters.requests += len(prompts)
        return Call(self.link, prompts)

    def count(self, generation: Generation) -> None:
        """Add an answered generation to the counters."""
        if generation.finish is None:
            return
        self.counters.prompt_tokens += len(generation.request.tokens)
        self.counters.generation_tokens += len(generation.output)
        self.counters.aborted += generation.finish["type"] == FinishType.ABORT

    async def answer(self, request: Request, prompts: Sequence[Prompt]) -> list[Generation]:
        generations = await complete(request, self.call(prompts))
        for generation in generations:
            self.count(generation)
        return generations

    async def server_info(self) -> dict[str, Any]:
        """The engine as its ranks describe it, all at one step boundary."""
        answers = await self.link.ask(QueryKind.INFO)
        config, lead = self.config, answers[0]
        return {
            "schema": 1,
            "model": config.model,
            "dtype": config.dtype,
            "tp_size": config.tp,
            "dcp_size": config.dcp,
            "page_size": config.page_size,
            "interleave": config.interleave,
            "dcp_comm_backend": config.dcp_comm_backend,
            "comm": config.comm,
            "device": config.device,
            "max_total_num_tokens": lead["max_total_num_tokens"],
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
    _add_errors(app, front)
    _add_generation(app, front)
    _add_openai(app, front)
    _add_state(app, front)
    return app


def _add_generation(app: FastAPI, front: Front) -> None:
    @app.post("/generate")
    async def generate(body: native.GenerateBody, request: Request) -> Response:
        prompts = body.prompts(vocab_size=front.model.vocab_size)
        if body.stream:

            def event(generation: Generation) -> dict[str, Any]:
                front.count(generation)
                return native.stream_event(generation, is_list=body.is_list)

            return await stream(request, front.call(prompts), event=event)
        answers = [native.answer(one) for one in await front.answer(request, prompts)]
        return AsciiJSONResponse(answers if body.is_list else answers[0])

    @app.post("/abort_request")
    async def abort(body: AbortBody) -> Response:
        if (body.rid is None) != body.abort_all:
            raise UsageError("give either rid or abort_all: true")
        for rid in front.link.rids() if body.rid is None else [body.rid]:
            front.link.abort(rid)
        return Response()


def _add_openai(app: FastAPI, front: Front) -> None:
    async def serve(body: ChatBody | CompletionBody, request: Request) -> Response:
        prompts = body.prompts(vocab_size=front.model.vocab_size)
        rid = body.rid or prompts[0].request.rid
        shape = Shape(chat=isinstance(body, ChatBody), model=body.model or front.model_name, rid=rid)
        if not body.stream:
            return AsciiJSONResponse(shape.answer(await front.answer(request, prompts)))
        call = front.call(prompts)
        sent = {generation.index: (0, 0) for generation in call.generations}

        def event(generation: Generation) -> dict[str, Any]:
            front.count(generation)
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
        return Response(status_code=200 if front.link.ready else 503)

    @app.get("/health_generate")
    async def health_generate(request: Request) -> Response:
        prompt = make_prompt(
            (BOS_ID,), rid=None, max_new_tokens=1, temperature=0.0, seed=0, ignore_eos=True, stop=None
        )
        await complete(request, Call(front.link, [prompt]))
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

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(render(front.counters, info=await front.server_info()), media_type=CONTENT_TYPE)

    @app.get("/kv_rows")
    async def kv_rows() -> dict[str, Any]:
        if not front.config.kv_rows:
            raise HTTPException(404, "/kv_rows is off: start the engine with --kv-rows")
        return await front.kv_rows()


def _add_errors(app: FastAPI, front: Front) -> None:
    @app.exception_handler(UsageError)
    async def usage(_: Request, error: UsageError) -> Response:
        front.counters.refused += 1
        return _error(400, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        front.counters.refused += 1
        told = [_tell(one) for one in error.errors()[:MAX_ERRORS_TOLD]]
        return _error(400, "; ".join(told))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(EngineGoneError)
    async def gone(_: Request, error: EngineGoneError) -> Response:
        return _error(503, str(error))

    @app.exception_handler(ClientGoneError)
    async def left(_: Request, error: ClientGoneError) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


def _tell(error: dict[str, Any]) -> str:
    """`sampling_params.top_p: only 1.0 is supported, found 0.5`, from one of pydantic's errors."""
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    why = error.get("ctx", {}).get("error", "")
    message = f"{error['msg']}: {why}" if error["type"] == "json_invalid" else error["msg"]
    return f"{place}: {message.removeprefix('Value error, ')}" if place else message


def _error(status: int, message: str) -> Response:
    kind = "BadRequestError" if status < 500 else "ServiceUnavailableError"
    return AsciiJSONResponse(
        {"error": {"message": message, "type": kind, "code": status}}, status_code=status
    )
