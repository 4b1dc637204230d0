"""Errors as the engine's front and the router both tell them: {"error": {"message", "type", "code"}}. No I/O."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

# nginx's code for a client that closed the connection; nobody reads it.
CLIENT_CLOSED_REQUEST = 499

_KINDS = {
    HTTPStatus.BAD_GATEWAY: "HandoverError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
    HTTPStatus.GATEWAY_TIMEOUT: "DeadlineError",
}


def describe_error(status: int, words: str) -> dict[str, Any]:
    """The error object; what is below 500 is the caller's mistake."""
    kind = "BadRequestError" if status < 500 else _KINDS.get(HTTPStatus(status), "InternalServerError")
    return {"message": words, "type": kind, "code": int(status)}
