"""Errors of the router as whole answers. No I/O."""

from __future__ import annotations

import json

from fastapi.responses import Response

from harness.refengine.http_errors import describe_error


def error_response(status: int, words: str) -> Response:
    # With escapes: an error may quote what no UTF-8 can carry.
    content = json.dumps({"error": describe_error(status, words)}).encode()
    return Response(content, status_code=status, media_type="application/json")
