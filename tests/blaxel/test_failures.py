"""Every kind of failure becomes one of ours, with one clear sentence, through the SDK as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from engine.sandboxes import (
    CredentialsError,
    PermanentError,
    ProviderError,
    QuotaError,
    RateLimited,
    SandboxGone,
    SandboxSpec,
    TransientError,
)
from engine.sandboxes.blaxel import sdk
from engine.sandboxes.blaxel.failures import ask, classify
from engine.sandboxes.blaxel.provider import BlaxelProvider
from engine.sandboxes.naming import new_name
from tests.blaxel_emulator.faults import CREATE, Fault
from tests.blaxel_emulator.serving import Emulator

pytestmark = pytest.mark.asyncio(loop_scope="module")

CREATIONS = [
    (
        Fault("status", CREATE, count=1, status=429, retry_after=7, code="RATE_LIMIT_EXCEEDED"),
        RateLimited,
        7.0,
    ),
    (Fault("status", CREATE, count=1, status=429), RateLimited, None),
    (Fault("status", CREATE, count=1, status=403, code="QUOTA_EXCEEDED"), QuotaError, None),
    (Fault("status", CREATE, count=1, status=400, code="QUOTA_EXCEEDED"), QuotaError, None),
    (Fault("status", CREATE, count=1, status=500, code="INTERNAL_ERROR"), TransientError, None),
    (Fault("status", CREATE, count=1, status=503, code="SERVICE_UNAVAILABLE"), TransientError, None),
    (Fault("status", CREATE, count=1, status=401, code="TOKEN_REVOKED"), CredentialsError, None),
    (Fault("status", CREATE, count=1, status=403, code="UNAUTHORIZED_WORKSPACE"), CredentialsError, None),
    (Fault("status", CREATE, count=1, status=400, code="IMAGE_NOT_FOUND"), PermanentError, None),
    (Fault("html", CREATE, count=1, status=502), TransientError, None),
    (Fault("html", CREATE, count=1, status=500), TransientError, None),
    (Fault("html", CREATE, count=1, status=413), PermanentError, None),
    (Fault("drop", CREATE, count=1), TransientError, None),
    (Fault("lost_reply", CREATE, count=1), TransientError, None),
]


@pytest.fixture
def soon_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more comes of a creation here, once it has failed: a release need not look for so long."""
    monkeypatch.setattr("engine.sandboxes.blaxel.provider.SETTLE_SECONDS", 1.0)


@pytest.mark.usefixtures("soon_settled")
@pytest.mark.parametrize(
    ("fault", "kind", "after"),
    CREATIONS,
    ids=[f"{fault.kind}-{fault.status}-{fault.code}" for fault, _, _ in CREATIONS],
)
async def test_a_creation_that_fails(
    service: Emulator,
    provider: BlaxelProvider,
    fault: Fault,
    kind: type[ProviderError],
    after: float | None,
) -> None:
    service.world.faults.rules[:] = [fault]
    name = new_name("test")
    try:
        with pytest.raises(ProviderError) as raised:
            await provider.create(SandboxSpec(name))
    finally:
        service.world.faults.rules.clear()
        await provider.release(name)
    error = raised.value
    assert type(error) is kind, error
    if isinstance(error, TransientError):
        assert error.retry_after == after or (after is None and kind is RateLimited)
    assert str(error).startswith("Blaxel, creating the sandbox ltui-")
    assert "\n" not in str(error)
    assert "<html" not in str(error).lower()
    assert service.world.settings.key not in str(error)
    assert service.world.find(name) is None or str(service.world.boxes[name].status) == "TERMINATED"


async def test_a_key_that_is_not_accepted(service: Emulator, provider: BlaxelProvider) -> None:
    environ = {**service.environment(), "BL_API_KEY": "wrong-key-of-somebody"}
    other = BlaxelProvider(provider._project_dir, environ=environ)
    report = await other.probe()
    assert not report.usable
    assert "does not accept the credentials" in report.problems[0]
    assert "wrong-key" not in report.problems[0]
    await other.aclose()


async def test_a_service_that_is_not_there(provider: BlaxelProvider, service: Emulator) -> None:
    environ = {**service.environment(), sdk.URL_VARIABLE: "http://127.0.0.1:9/v0"}
    other = BlaxelProvider(provider._project_dir, environ=environ)
    report = await other.probe()
    assert "the connection failed" in report.problems[0]
    await other.aclose()


async def test_passing_failures_are_tried_again_and_lasting_ones_are_not() -> None:
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise httpx.ReadError("gone")
        return "there"

    assert await ask("trying", call) == "there"
    calls.clear()

    async def refuse() -> None:
        calls.append(1)
        raise httpx.UnsupportedProtocol("ftp")

    with pytest.raises(PermanentError):
        await ask("trying", refuse)
    assert len(calls) == 1


def plane(status: int, body: object, headers: dict[str, str] | None = None) -> Exception:
    """As the SDK raises it for a sandbox's own answer."""
    from blaxel.core import ResponseError

    content = json.dumps(body) if not isinstance(body, str) else body
    return ResponseError(httpx.Response(status, content=content.encode(), headers=headers))


async def test_what_a_sandbox_answers(provider: BlaxelProvider) -> None:
    await provider.probe()  # the SDK is loaded
    gone = classify(plane(404, {"error": {"code": "WORKLOAD_NOT_FOUND", "message": "no such workload"}}), "x")
    assert type(gone) is SandboxGone
    later = datetime.now(UTC) + timedelta(seconds=90)
    limited = classify(plane(429, {}, {"Retry-After": format_datetime(later, usegmt=True)}), "x")
    assert isinstance(limited, RateLimited)
    assert limited.retry_after is not None
    assert 60 < limited.retry_after <= 90
    page = classify(plane(502, "<!DOCTYPE html><html><body>Bad gateway</body></html>"), "reading")
    assert type(page) is TransientError
    assert str(page) == "Blaxel, reading: HTTP 502, a web page instead of an answer"
    long = classify(plane(422, {"error": "a\nb " * 1000}), "x")
    assert type(long) is PermanentError
    assert len(str(long)) < 400


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KeyError("metadata"), TransientError),
        (json.JSONDecodeError("Expecting value", "<html>", 0), TransientError),
        (ValueError("'NEW_WORD' is not a valid Status"), TransientError),
        (httpx.ConnectTimeout("slow"), TransientError),
        (httpx.RemoteProtocolError("Server disconnected"), TransientError),
        (TimeoutError("Process did not finish"), TransientError),
        (Exception("Failed to write binary: 413 too large"), PermanentError),
        (Exception("Failed to write binary: 503 busy"), TransientError),
        (Exception("No result received from streaming response"), TransientError),
    ],
)
async def test_what_has_no_family(error: Exception, kind: type[ProviderError]) -> None:
    assert type(classify(error, "x")) is kind
