"""The router's HTTP surface: that of the engines it stands for.

What generates goes through a pair; what asks about state goes to the decode side, which holds the answers' rows;
what changes state goes to every engine.
"""

from __future__ import annotations

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from harness.errors import UsageError
from harness.refengine.http_errors import CLIENT_CLOSED_REQUEST
from harness.refengine.router.bodies import ClientBody, Endpoint, parse_abort, parse_body
from harness.refengine.router.errors import error_response
from harness.refengine.router.proxy import Proxy
from harness.refengine.router.state import State, UnreachableError

# A prompt of a million token ids is 7 MB of JSON. A body is held several times over while both sides read it.
MAX_BODY_BYTES = 256 << 20
# The least that goes through both sides.
HEALTH_BODY = {"text": "a", "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}


def make_app(proxy: Proxy, state: State) -> FastAPI:
    """All routes over the engines behind `proxy` and `state`."""
    app = FastAPI(title="harness router")
    _add_errors(app)
    _add_generation(app, proxy)
    _add_orders(app, state)
    _add_questions(app, state)
    return app


def _add_generation(app: FastAPI, proxy: Proxy) -> None:
    @app.post(Endpoint.GENERATE.value)
    @app.post(Endpoint.COMPLETIONS.value)
    @app.post(Endpoint.CHAT.value)
    async def generate(request: Request) -> Response:
        body = parse_body(Endpoint(request.url.path), await _read(request))
        return await proxy.serve(request, body)

    @app.get("/health_generate")
    async def health_generate(request: Request) -> Response:
        body = ClientBody(endpoint=Endpoint.GENERATE, fields=HEALTH_BODY, prompts=None, rids=())
        response = await proxy.serve(request, body)
        return Response() if response.status_code == httpx.codes.OK else response


def _add_orders(app: FastAPI, state: State) -> None:
    @app.post("/abort_request")
    async def abort(request: Request) -> Response:
        content = await _read(request)
        status, words = await state.abort(content, rid=parse_abort(content))
        return error_response(status, words) if words else Response()

    @app.api_route("/flush_cache", methods=["GET", "POST"])
    async def flush_cache() -> Response:
        status, text = await state.flush()
        return PlainTextResponse(f"{text}\n", status_code=status)


def _add_questions(app: FastAPI, state: State) -> None:
    @app.get("/health")
    async def health() -> Response:
        words = await state.health()
        return error_response(503, words) if words else Response()

    @app.api_route("/server_info", methods=["GET", "POST"])
    @app.api_route("/get_server_info", methods=["GET", "POST"])
    async def server_info() -> Response:
        return JSONResponse(await state.server_info())

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(await state.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    @app.get("/kv_rows")
    async def of_decode(request: Request) -> Response:
        answer = await state.of_decode(request.url.path)
        return Response(answer.content, status_code=answer.status_code, media_type="application/json")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(UsageError)
    async def usage(_: Request, error: UsageError) -> Response:
        return error_response(400, str(error))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail))

    @app.exception_handler(UnreachableError)
    async def unreachable(_: Request, error: UnreachableError) -> Response:
        return error_response(502, str(error))

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _read(request: Request) -> bytes:
    """The whole body. Raises HTTPException for one that is too long, before it is held whole."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    return bytes(body)
