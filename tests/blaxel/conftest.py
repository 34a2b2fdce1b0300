"""The real SDK against the emulator, and nothing else: no test here can reach another machine.

The emulator and the provider live as long as the tests of a module do; so does their event loop.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.sandboxes import SandboxSettings, SandboxSpec
from engine.sandboxes.blaxel.provider import BlaxelProvider
from engine.sandboxes.blaxel.sandbox import BlaxelSandbox
from engine.sandboxes.naming import new_name
from tests.blaxel_emulator.records import Settings
from tests.blaxel_emulator.serving import Emulator, emulator

type Make = Callable[..., Awaitable[BlaxelSandbox]]


class OutsideWorld(Exception):
    """A test tried to reach another machine."""


class _Guard:
    """An audit hook, which cannot be taken off again; it does nothing outside of these tests."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "socket.connect":
            address = args[1]
            host = address[0] if isinstance(address, tuple) else "localhost"
        elif event == "socket.getaddrinfo":
            host = args[0]
        else:
            return
        text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
        try:
            inside = text == "localhost" or ip_address(text).is_loopback
        except ValueError:
            inside = False
        if not inside:
            raise OutsideWorld(f"{event} to {text}")


GUARD = _Guard()


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing but this machine, and none of the developer's own credentials."""
    for name in ("BL_WORKSPACE", "BL_API_KEY", "BL_CLIENT_CREDENTIALS", "BL_ENV", "LOOPS_TUI_BLAXEL_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    GUARD.on = True
    yield
    GUARD.on = False


@pytest.fixture(scope="module")
def service_settings() -> Settings:
    """The emulator's own settings; modules override it."""
    return Settings()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(
    tmp_path_factory: pytest.TempPathFactory, service_settings: Settings
) -> AsyncIterator[Emulator]:
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here, without which the emulator's sandboxes have no /tmp of their own")
    async with emulator(tmp_path_factory.mktemp("service"), service_settings) as served:
        yield served


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def settings() -> SandboxSettings:
    return SandboxSettings(provider="blaxel", memory_mb=512, env={"EVERYWHERE": "yes"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(
    service: Emulator, project: Path, settings: SandboxSettings
) -> AsyncIterator[BlaxelProvider]:
    opened = BlaxelProvider(project, settings, environ=service.environment())
    yield opened
    await opened.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def make(service: Emulator, provider: BlaxelProvider) -> AsyncIterator[Make]:
    """Creates sandboxes that are gone when the test is; what went wrong on purpose goes right again."""
    names: list[str] = []

    async def create(**spec: Any) -> BlaxelSandbox:
        name = new_name("test")
        names.append(name)
        made = await provider.create(SandboxSpec(name, **spec))
        assert isinstance(made, BlaxelSandbox)
        return made

    yield create
    service.world.faults.rules.clear()
    for name in names:
        await provider.release(name)


@pytest_asyncio.fixture(loop_scope="module")
async def sandbox(make: Make) -> BlaxelSandbox:
    return await make()
