"""The bodies that the real service answers with, by who answers: control plane, edge gateway, sandbox."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response

_REASONS = {502: "Bad Gateway", 503: "Service Temporarily Unavailable", 504: "Gateway Time-out"}


class Refusal(Exception):
    """A handler's way to answer with an error at once."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def control_error(status: int, error: str, message: str = "") -> JSONResponse:
    """Get, list, update and delete: ``code`` is the HTTP status, ``error`` the text."""
    return JSONResponse({"error": error, "code": status, "message": message or error}, status)


def create_error(
    status: int, code: str, message: str, *, name: str = "", workspace: str = "", **details: Any
) -> JSONResponse:
    """Creation alone has stable words as ``code``."""
    body: dict[str, Any] = {
        "code": code,
        "message": message,
        "status_code": status,
        "step": "validate_and_prepare",
        "timestamp": timestamp(time.time()),
        "workspace": workspace,
    }
    if name:
        body["sandbox_name"] = name
    if details:
        body["details"] = details
    return JSONResponse(body, status)


def edge_error(status: int, code: str, message: str, *, retryable: bool = False) -> JSONResponse:
    """What the gateway in front of both planes says."""
    error = {
        "code": code,
        "message": message,
        "status": status,
        "origin": "platform",
        "retryable": retryable,
        "timestamp": timestamp(time.time()),
    }
    return JSONResponse({"error": error}, status)


def sandbox_error(status: int, error: str) -> JSONResponse:
    """What the server inside a sandbox says."""
    return JSONResponse({"error": error}, status)


def html_page(status: int) -> HTMLResponse:
    """The page of a proxy that knows nothing of JSON."""
    reason = _REASONS.get(status, "Error")
    page = f"<html>\r\n<head><title>{status} {reason}</title></head>\r\n<body>\r\n<center><h1>{status} {reason}</h1></center>\r\n</body>\r\n</html>\r\n"
    return HTMLResponse(page, status)


def gone(name: str) -> JSONResponse:
    """The sandbox plane for a sandbox that is not there (any more)."""
    return edge_error(404, "WORKLOAD_NOT_FOUND", f"Workload {name} not found")


def timestamp(seconds: float) -> str:
    """Unix seconds as the control plane writes them."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def http_date(seconds: float) -> str:
    """Unix seconds as the sandbox's server writes them."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds))
