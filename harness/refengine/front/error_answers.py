"""Every error as an answer of the shape {"error": {"message", "type", "code"}}.

400 for what the caller got wrong, 502 where the engine that a request is shared with failed it, 503 while this one is
not (or no longer) there.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette import status
from starlette.exceptions import HTTPException

from harness.errors import HandoverError, UsageError
from harness.refengine.front.field_errors import tell_errors
from harness.refengine.front.link import EngineGoneError, EngineSilentError
from harness.refengine.front.serving import AsciiJSONResponse, ClientGoneError, error_body
from harness.refengine.http_errors import CLIENT_CLOSED_REQUEST
from harness.refengine.metrics import Counters

# More wrong fields than this help nobody.
MAX_ERRORS_TOLD = 5


def add_errors(app: FastAPI, counters: Counters) -> None:
    """Answer what routes raise, and count refusals."""

    @app.exception_handler(UsageError)
    async def usage(_: Request, error: UsageError) -> Response:
        counters.refused += 1
        return _error(status.HTTP_400_BAD_REQUEST, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        counters.refused += 1
        return _error(status.HTTP_400_BAD_REQUEST, "; ".join(tell_errors(error.errors())[:MAX_ERRORS_TOLD]))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(HandoverError)
    async def handover(_: Request, error: HandoverError) -> Response:
        return _error(status.HTTP_502_BAD_GATEWAY, str(error))

    @app.exception_handler(EngineGoneError)
    @app.exception_handler(EngineSilentError)
    async def gone(_: Request, error: EngineGoneError | EngineSilentError) -> Response:
        return _error(status.HTTP_503_SERVICE_UNAVAILABLE, str(error))

    @app.exception_handler(ClientGoneError)
    async def left(_: Request, error: ClientGoneError) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)


def _error(code: int, message: str) -> Response:
    return AsciiJSONResponse(error_body(code, message), status_code=code)
