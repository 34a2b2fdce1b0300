"""A small repository with a bug, and fresh sandboxes to judge attempts in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from engine.sandboxes.contract import Sandbox, SandboxSpec
from engine.sandboxes.local.provider import LocalProvider
from engine.sandboxes.settings import SandboxSettings

FreshSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]

WORKSPACE = {
    "app.py": 'def total(rows):\n    return sum(r["amount"] for r in rows[:-1])\n',
    "tests.py": (
        "from app import total\n\n"
        'assert total([{"amount": 1}, {"amount": 2}, {"amount": 3}]) == 6, "does not sum every row"\n'
        'assert total([]) == 0, "the total of nothing is not zero"\n'
        'print("ok")\n'
    ),
}
FIXED = 'def total(rows):\n    return sum(r["amount"] for r in rows)\n'


@pytest.fixture
async def fresh_sandbox(tmp_path: Path) -> AsyncIterator[FreshSandbox]:
    """Opens a sandbox of its own for each verdict."""
    provider = LocalProvider(tmp_path, SandboxSettings(memory_mb=1024, disk_mb=64))
    report = await provider.probe()
    if not report.usable:
        pytest.skip("; ".join(report.problems))

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Sandbox]:
        name = f"suite-{secrets.token_hex(6)}"
        try:
            yield await provider.create(SandboxSpec(name=name, memory_mb=1024))
        finally:
            await provider.release(name)

    yield fresh
    await provider.aclose()
