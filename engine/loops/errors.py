"""Loops' failures, told apart and put into words.

The SDK raises a dozen kinds of exception (httpx, pydantic, its own, plain RuntimeError). The engine knows two:
one that ends the run, and one that costs an attempt.
"""

from __future__ import annotations

import asyncio
import json

import httpx


class LoopsError(Exception):
    """Loops failed. ``str()`` is one sentence, safe to show; the cause keeps the details."""


class LoopsUnavailable(LoopsError):
    """Loops cannot serve this run any more: wrong key, server gone, run deactivated, trainer refused a batch."""


class SampleFailed(LoopsError):
    """One sampling call failed; another attempt may succeed."""


class SaveFailed(LoopsError):
    """A checkpoint could not be saved; training can go on."""


#: Statuses of one failed request that say nothing about the next one.
_PASSING_STATUSES = frozenset({408, 413, 422, 429, 500, 502, 503, 504})


def one_line(text: str, limit: int = 400) -> str:
    """White space folded, clipped: server texts may be whole pages."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def body_text(response: httpx.Response) -> str:
    """What the server said: ``detail``, ``error`` or ``message`` of its JSON, else its text."""
    try:
        value = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError, httpx.ResponseNotRead):
        try:
            return one_line(response.text)
        except (httpx.ResponseNotRead, UnicodeDecodeError):
            return ""
    if isinstance(value, dict):
        for key in ("detail", "error", "message"):
            if isinstance(value.get(key), str) and value[key]:
                return one_line(value[key])
    return one_line(json.dumps(value))


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error of the SDK or of its management client, where there is one."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code
    status = getattr(error, "status_code", None)  # the management client's ResponseError
    return status if isinstance(status, int) else None


def _said(error: BaseException) -> str:
    """What the server said beside the status."""
    if isinstance(error, httpx.HTTPStatusError):
        return body_text(error.response) or one_line(str(error))
    body = str(getattr(error, "body", ""))
    return body_text(httpx.Response(200, text=body)) or one_line(str(error))


def explain(error: BaseException, doing: str, url: str | None) -> str:
    """One sentence for a person: what failed while doing what, and what to look at."""
    where = url or "Baseten"
    if (status := status_of(error)) is not None:
        said = _said(error)
        if status in (401, 403):
            return f"Loops at {where} refused the API key while {doing} ({status}: {said})"
        return f"Loops at {where} answered {status} while {doing}: {said}"
    if isinstance(error, httpx.ConnectError):
        return f"nothing answers at {where} while {doing}: {one_line(str(error))}"
    if isinstance(error, httpx.HTTPError):
        return f"the connection to Loops at {where} failed while {doing}: {type(error).__name__} {one_line(str(error))}"
    if isinstance(error, json.JSONDecodeError):
        return f"{where} does not speak Loops (it answered something that is not JSON) while {doing}"
    if isinstance(error, KeyError):
        return f"{where} does not speak Loops (its answer lacks {error}) while {doing}"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        return f"Loops at {where} took too long while {doing}: {one_line(str(error)) or 'no answer'}"
    if type(error).__name__ == "ServerShutdownError":
        return f"Loops at {where} is shutting down (while {doing})"
    if type(error).__name__ == "UnknownRequestError":
        return f"Loops at {where} lost the operation while {doing}: it was restarted"
    said = one_line(str(error)) or type(error).__name__
    if "terminal-failure state 'INACTIVE'" in said:  # the SDK's words where it waits for a sampler
        return f"the run's sampler at {where} is deactivated, which ended it while {doing}: {said}"
    return f"Loops at {where} failed while {doing}: {said}"


def sample_failure(error: Exception, url: str | None) -> LoopsError:
    """Tell a call's bad luck from the end of the run."""
    sentence = explain(error, "sampling", url)
    if may_pass(error) or type(error).__name__ == "SampleTimeoutError":
        return SampleFailed(sentence)
    if isinstance(error, ValueError):  # a reply that does not validate
        return SampleFailed(sentence)
    return LoopsUnavailable(sentence)


def may_pass(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, httpx.HTTPStatusError):
        said = body_text(error.response).lower()
        gone = "inactive" in said or "deactivated" in said
        return error.response.status_code in _PASSING_STATUSES and not gone
    return isinstance(error, (httpx.ReadError, httpx.RemoteProtocolError, httpx.TimeoutException))
