"""Errors in the shape that the engines use: {"error": {"message", "type", "code"}}. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

_KINDS = {
    HTTPStatus.BAD_GATEWAY: "HandoverError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
    HTTPStatus.GATEWAY_TIMEOUT: "DeadlineError",
}


def describe_error(status: int, words: str) -> dict[str, Any]:
    """The error object; what is below 500 is the caller's mistake."""
    kind = "BadRequestError" if status < 500 else _KINDS.get(HTTPStatus(status), "InternalServerError")
    return {"message": words, "type": kind, "code": int(status)}


def error_response(status: int, words: str, *, headers: Mapping[str, str] | None = None) -> Response:
    # With escapes: an error may quote what no UTF-8 can carry.
    content = json.dumps({"error": describe_error(status, words)}).encode()
    return Response(content, status_code=status, media_type="application/json", headers=headers)
