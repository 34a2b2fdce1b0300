"""A project directory, a provider, and sandboxes that are gone when the test is.

The provider lives as long as the tests of a module do; so does their event loop (``loop_scope="module"``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from engine.sandboxes import Sandbox, SandboxSettings, SandboxSpec
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.naming import new_name
from tests.sandboxes.traces import traces

type Make = Callable[..., Awaitable[Sandbox]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project directory with something to steal in it."""
    place = tmp_path_factory.mktemp("project")
    (place / ".env").write_text("BASETEN_API_KEY=very-secret-key\n")
    return place


@pytest.fixture(scope="module")
def settings() -> SandboxSettings:
    return SandboxSettings(disk_mb=16, memory_mb=256, max_processes=48)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(project: Path, settings: SandboxSettings) -> AsyncIterator[LocalProvider]:
    opened = LocalProvider(project, settings)
    yield opened
    await opened.aclose()
    assert traces(project) == []


@pytest_asyncio.fixture(loop_scope="module")
async def make(provider: LocalProvider) -> AsyncIterator[Make]:
    """Creates sandboxes with bubblewrap; skips where this machine has none."""
    report = await provider.probe()
    if report.isolation != "bubblewrap":
        pytest.skip(f"no bubblewrap here: {report}")
    names: list[str] = []

    async def create(**spec: object) -> Sandbox:
        name = new_name("test")
        names.append(name)
        return await provider.create(SandboxSpec(name, **spec))  # type: ignore[arg-type]

    yield create
    for name in names:
        await provider.release(name)


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(make: Make) -> Sandbox:
    return await make()


needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
