"""What a failure of the SDK means, and trying again where that may help.

The SDK raises several families of errors, and bare ones where an answer is not what it expects. ``classify`` turns
each into one of ours with one clear sentence; every call of the SDK goes through ``ask``.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import tenacity

from engine.sandboxes.blaxel.sdk import NEEDED
from engine.sandboxes.errors import (
    CredentialsError,
    PermanentError,
    ProviderError,
    QuotaError,
    RateLimited,
    SandboxError,
    SandboxGone,
    TransientError,
)

CALL_SECONDS = 60.0
"""One answer may take so long, unless the caller says otherwise."""
TRIES = 4
MAX_PAUSE = 30.0

_QUOTA_CODES = frozenset({"QUOTA_EXCEEDED", "USAGE_LIMIT_EXCEEDED"})
_RATE_CODES = frozenset({"RATE_LIMIT_EXCEEDED", "WORKSPACE_RATE_LIMIT_EXCEEDED"})
_GONE_CODES = frozenset({"WORKLOAD_NOT_FOUND", "SANDBOX_DELETED"})
_PASSING_CODES = frozenset(
    {
        "AUTHENTICATION_UNAVAILABLE",
        "CREATION_TIMEOUT",
        "SANDBOX_DELETION_IN_PROGRESS",
        "SERVICE_UNAVAILABLE",
        "LOCK_ACQUISITION_FAILED",
    }
)
_BARE_STATUS = re.compile(r"^Failed to [a-z ]+: (\d{3})\b")
_MAX_TEXT = 300


async def ask[T](
    doing: str, call: Callable[[], Awaitable[T]], *, seconds: float = CALL_SECONDS, tries: int = TRIES
) -> T:
    """The answer of one call, tried again after passing failures; ``doing`` completes "Blaxel, … failed".

    ``tries=1`` for what must not be done twice. Raises ProviderError.
    """
    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(tries),
        wait=_wait,
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, TransientError)),
        reraise=True,
    )
    return await retrying(_once, doing, call, seconds)


async def _once[T](doing: str, call: Callable[[], Awaitable[T]], seconds: float) -> T:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call()
    except SandboxError:
        raise
    except TimeoutError as error:
        if limit.expired():
            raise TransientError(f"Blaxel, {doing}: no answer within {seconds:g} s") from error
        raise classify(error, doing) from error
    except Exception as error:
        raise classify(error, doing) from error


def _wait(state: tenacity.RetryCallState) -> float:
    return pause(state.attempt_number, state.outcome.exception() if state.outcome is not None else None)


def pause(number: int, error: BaseException | None) -> float:
    """Seconds before the next try: as the service asked, or growing and jittered."""
    asked = getattr(error, "retry_after", None)
    if asked is not None:
        return min(float(asked), MAX_PAUSE) + random.uniform(0.0, 0.25)
    return random.uniform(0.5, 1.0) * min(8.0, 0.25 * 2**number)


def classify(error: BaseException, doing: str) -> ProviderError:
    """Which of our errors it is. Never holds more of an answer than its own words, cut short."""
    said = f"Blaxel, {doing}"
    if type(error).__name__ == "CredentialsError":  # the SDK's own, which has no base of its own
        return CredentialsError(NEEDED)
    status, code = status_of(error), code_of(error)
    words = _words(error, status, code)
    after = _retry_after(error)
    if code in _QUOTA_CODES or status == 402:
        return QuotaError(f"{said}: the account's quota is used up ({words})", retry_after=after)
    if code in _RATE_CODES or status == 429:
        return RateLimited(f"{said}: too many requests ({words})", retry_after=after)
    if code in _PASSING_CODES:
        return TransientError(f"{said}: {words}", retry_after=after)
    if status in (401, 403):
        return CredentialsError(
            f"{said}: Blaxel does not accept the credentials ({words}); check BL_API_KEY and BL_WORKSPACE"
        )
    if code in _GONE_CODES or status in (404, 410):
        return SandboxGone(f"{said}: it does not exist ({words})")
    if code == "SANDBOX_ALREADY_EXISTS":
        return PermanentError(f"{said}: the name is taken already ({words})")
    if status is not None:
        if status in (408, 409, 425) or status >= 500:
            return TransientError(f"{said}: {words}", retry_after=after)
        return PermanentError(f"{said}: refused ({words})")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return PermanentError(f"{said}: {words}")
    if isinstance(error, httpx.TransportError):
        return TransientError(f"{said}: the connection failed ({words})")
    if isinstance(error, TimeoutError):
        return TransientError(f"{said}: no answer in time ({words})")
    # What is left comes from reading an answer: a page where JSON belongs, a missing key, an unknown word.
    return TransientError(f"{said}: the answer was not understood ({words})")


def not_found_inside(error: BaseException) -> bool:
    """Whether a living sandbox said that it has no such command or file."""
    return status_of(error) == 404 and code_of(error) not in _GONE_CODES


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error of the SDK."""
    for name in ("status", "status_code"):
        value = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return value
    value = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(value, int):
        return value
    bare = _BARE_STATUS.match(str(error))
    return int(bare.group(1)) if bare else None


def code_of(error: BaseException) -> str | None:
    """The service's own word for it; ``code`` is the error's text in some answers, a table in others."""
    body = getattr(error, "body", None)
    nested = body.get("error") if isinstance(body, dict) else None
    for holder in (getattr(error, "code", None), body, nested):
        value = holder.get("code") if isinstance(holder, dict) else holder
        if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z0-9_]{1,63}", value):
            return value
    return None


def _retry_after(error: BaseException) -> float | None:
    """Seconds that the service asked us to wait."""
    response = getattr(error, "response", None)
    values: list[Any] = [getattr(error, "retry_after_seconds", None), getattr(error, "retry_after", None)]
    if isinstance(response, httpx.Response):
        values.append(response.headers.get("retry-after"))
    for value in values:
        seconds = _seconds(value)
        if seconds is not None:
            return seconds
    return None


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return max(0.0, float(value))
    if not isinstance(value, str) or not value.strip():
        return None
    text = value.strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    from datetime import UTC, datetime

    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _words(error: BaseException, status: int | None, code: str | None) -> str:
    """Status, code and the service's own sentence, on one line; a page of HTML is only called that."""
    parts: list[str] = [] if status is None else [f"HTTP {status}"]
    if code is not None:
        parts.append(code)
    body = getattr(error, "body", None)
    if isinstance(body, dict):
        nested = body.get("error")
        source = nested if isinstance(nested, dict) else body
        text = source.get("message") or (nested if isinstance(nested, str) else "")
    elif isinstance(body, str | bytes):
        text = body if isinstance(body, str) else body.decode("utf-8", "replace")
    elif status is not None and code is not None:
        text = ""
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = " ".join(str(text).split())
    if text.lstrip().lower().startswith(("<!doctype", "<html")):
        text = "a web page instead of an answer"
    if text and text != code:
        parts.append(text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…")
    return ", ".join(parts) or type(error).__name__
