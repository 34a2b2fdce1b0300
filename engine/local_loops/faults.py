"""Refusals: how a request that cannot be served is answered.

The Loops SDK retries some status codes with long back-offs (a plain 400, 404, 408, 502 or 503 on a sample or a
trainer operation is repeated for up to an hour), so a lasting fault never uses one of them bare: it is a 422, a
500, or carries :data:`FINAL_HEADER`, which the SDK takes as "do not try again".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

log = logging.getLogger(__name__)

#: A 4xx with this header is final for the SDK: no retry, and its readiness loop ends at once.
FINAL_HEADER: Mapping[str, str] = {"X-Baseten-Error-Source": "06"}


class ApiFault(Exception):
    """A refusal with a sentence for the caller."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def unprocessable(message: str) -> ApiFault:
    """The request is understood and refused (422); the SDK raises at once."""
    return ApiFault(422, message, FINAL_HEADER)


def not_found(message: str) -> ApiFault:
    """The named thing does not exist (404, marked final so that nothing waits for it to appear)."""
    return ApiFault(404, message, FINAL_HEADER)


def unavailable(message: str) -> ApiFault:
    """The server is ending (503)."""
    return ApiFault(503, message)


def sentence_of(error: ValidationError) -> str:
    """The first complaint of a failed validation as one sentence, without echoing the input."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    more = error.error_count() - 1
    return f"{where}: {first['msg']}" + (f" (and {more} more)" if more else "")


async def answer_fault(_request: Request, error: Exception) -> JSONResponse:
    """Answer an :class:`ApiFault`."""
    assert isinstance(error, ApiFault)
    return JSONResponse({"error": error.message}, status_code=error.status, headers=error.headers)


async def answer_http(_request: Request, error: Exception) -> JSONResponse:
    """Answer routing failures (unknown path, wrong method) in the same shape, marked final."""
    assert isinstance(error, HTTPException)
    headers = {**(error.headers or {}), **FINAL_HEADER}
    return JSONResponse({"error": str(error.detail)}, status_code=error.status_code, headers=headers)


async def answer_unexpected(request: Request, error: Exception) -> JSONResponse:
    """Answer a defect of the server itself; the traceback goes to the log."""
    log.error("unexpected error on %s %s: %r", request.method, request.url.path, error)
    return JSONResponse({"error": f"internal error: {type(error).__name__}: {error}"}, status_code=500)
