"""The provider: what a sandbox is made with, that a release is a confirmed one, and that nothing is left open."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from pathlib import Path

import httpx
import pytest

from engine.sandboxes import (
    PermanentError,
    QuotaError,
    ReleaseOutcome,
    SandboxSettings,
    SandboxSpec,
)
from engine.sandboxes.blaxel import provider as module
from engine.sandboxes.blaxel.memory import recall
from engine.sandboxes.blaxel.provider import LABEL_MARK, BlaxelProvider
from engine.sandboxes.naming import new_name
from tests.blaxel.conftest import Make
from tests.blaxel_emulator.faults import CREATE, DELETE, RECORDS, Fault
from tests.blaxel_emulator.serving import Emulator
from tests.sandboxes.traces import open_files

pytestmark = pytest.mark.asyncio(loop_scope="module")


def live(service: Emulator) -> set[str]:
    return {box.name for box in service.world.live()}


async def test_what_it_is_made_with(make: Make, service: Emulator, project: Path) -> None:
    box = await make(
        labels={"ltui-run": "r1"},
        image="my/image:1",
        region="eu-lon-1",
        memory_mb=1024,
        ttl_seconds=601,
        env={"GIVEN": "1"},
    )
    found = service.world.find(box.name)
    assert found is not None
    memory = recall(project)
    assert memory is not None
    wanted = found.wanted
    assert wanted.labels == {"ltui-run": "r1", LABEL_MARK: memory.mark}
    assert (wanted.image, wanted.memory, wanted.ttl) == ("my/image:1", 1024, "11m")
    assert wanted.spec["region"] == "eu-lon-1"
    assert wanted.envs == {"EVERYWHERE": "yes", "GIVEN": "1"}
    assert memory.url == service.url
    short = await make(ttl_seconds=10)
    found = service.world.find(short.name)
    assert found is not None
    assert found.wanted.ttl == "5m"  # the service takes no less


async def test_a_name_is_used_once(make: Make, provider: BlaxelProvider) -> None:
    box = await make()
    with pytest.raises(PermanentError, match="taken already"):
        await provider.create(SandboxSpec(box.name))
    await box.ensure_alive()


async def test_release_waits_for_the_end_and_may_be_repeated(
    make: Make, provider: BlaxelProvider, service: Emulator
) -> None:
    box = await make()
    service.world.faults.rules.append(Fault("slow_delete", DELETE, count=1, seconds=1.0))
    both = await asyncio.gather(provider.release(box.name), provider.release(box.name))
    assert {released.outcome for released in both} == {ReleaseOutcome.RELEASED}
    assert box.name not in live(service)
    assert (await provider.release(box.name)).outcome is ReleaseOutcome.ALREADY_GONE
    assert (await provider.release("ltui-never-was")).outcome is ReleaseOutcome.ALREADY_GONE


@pytest.mark.parametrize("kind", ["drop", "lost_reply", "html", "status"])
async def test_a_release_gets_through(
    make: Make, provider: BlaxelProvider, service: Emulator, kind: str
) -> None:
    box = await make()
    for where in (DELETE, RECORDS):
        service.world.faults.rules.append(Fault(kind, where, count=2))  # pyright: ignore[reportArgumentType]
    await provider.release(box.name)
    assert box.name not in live(service)


async def asked(service: Emulator, request: str, since: int) -> None:
    """Wait until the service has got a request."""
    for _ in range(1000):
        if any(entry["request"] == request for entry in service.world.requests[since:]):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{request} never came")


async def test_a_creation_that_nobody_waits_for_is_found_and_released(
    provider: BlaxelProvider, service: Emulator, tmp_path: Path
) -> None:
    """Its effect comes after the first look for it."""
    service.world.faults.rules.append(Fault("latency", CREATE, count=1, seconds=4.0))
    name, since = new_name("test"), len(service.world.requests)
    creating = asyncio.create_task(provider.create(SandboxSpec(name)))
    await asked(service, "POST /v0/sandboxes", since)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    releasing = asyncio.create_task(provider.release(name))
    await asked(service, f"DELETE /v0/sandboxes/{name}", since)
    # Stands in for the request that was on its way.
    late = BlaxelProvider(tmp_path, environ=service.environment())
    await late.create(SandboxSpec(name))
    assert (await releasing).outcome is ReleaseOutcome.RELEASED
    assert live(service) == set()
    await late.aclose()


async def test_a_creation_that_was_refused_is_not_waited_for(
    provider: BlaxelProvider, service: Emulator
) -> None:
    service.world.faults.rules.append(Fault("status", CREATE, count=1, status=403, code="QUOTA_EXCEEDED"))
    name, since = new_name("test"), len(service.world.requests)
    with pytest.raises(QuotaError):
        await provider.create(SandboxSpec(name))
    assert (await provider.release(name)).outcome is ReleaseOutcome.ALREADY_GONE
    assert [entry["request"] for entry in service.world.requests[since:]] == [
        "POST /v0/sandboxes",
        f"DELETE /v0/sandboxes/{name}",
    ]


async def test_the_list_has_all_pages_and_only_ours(
    make: Make, provider: BlaxelProvider, service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's, of a project in a directory of the same name, are not ours, whatever their labels say."""
    monkeypatch.setattr(module, "_PAGE", 2)
    mine = {(await make(labels={"ltui-run": run})).name for run in ("r1", "r1", "r1", "r2", "r2")}
    other = BlaxelProvider(tmp_path, environ=service.environment())
    theirs = new_name("test")
    await other.create(SandboxSpec(theirs, {"ltui-run": "r1"}))
    assert {found.name for found in await provider.list()} == mine
    assert len(await provider.list({"ltui-run": "r1"})) == 3
    assert {found.name for found in await other.list()} == {theirs}
    await other.release(theirs)
    await other.aclose()
    (one,) = [found for found in await provider.list() if found.name == min(mine)]
    assert one.state == "running"
    assert one.created_at is not None
    assert one.owner_alive is None


async def test_another_workspace_is_not_taken_for_an_empty_one(
    make: Make, project: Path, service: Emulator, tmp_path: Path
) -> None:
    """There, each of our sandboxes would look gone."""
    await make()
    elsewhere = {
        **service.environment(),
        "LOOPS_TUI_BLAXEL_URL": service.url.replace("127.0.0.1", "localhost"),
    }
    directory = tmp_path / "copy"
    (directory / ".loops").mkdir(parents=True)
    (directory / ".loops" / "blaxel.json").write_text(
        (project / ".loops" / "blaxel.json").read_text().replace('"main"', '"before"')
    )
    moved = BlaxelProvider(directory, environ={**elsewhere, "LOOPS_TUI_BLAXEL_URL": service.url})
    with pytest.raises(PermanentError, match="are in the workspace before"):
        await moved.release("ltui-some-one")
    await moved.aclose()


async def test_nothing_stays_open(
    provider: BlaxelProvider, service: Emulator, settings: SandboxSettings
) -> None:
    async def live_and_die() -> None:
        name = new_name("test")
        box = await provider.create(SandboxSpec(name))
        await box.exec("true", timeout=60)
        await box.write_tree({"a": "b"})
        await provider.release(name)

    await live_and_die()
    before = len(open_files())
    for _ in range(3):
        await asyncio.gather(*(live_and_die() for _ in range(6)))
    # The control plane's connections are kept, and the service, which has their other ends, runs in this process too.
    kept = 2 * 6
    for _ in range(500):
        if len(open_files()) <= before + kept:
            break
        await asyncio.sleep(0.01)
    assert len(open_files()) <= before + kept
    assert provider._connections == {}
    assert provider._doubtful == {}


async def test_nothing_holds_the_loop_up_while_sandboxes_start(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could make it wait is done in threads (tests/bench/blaxel_start.py measures for how long it is held up)."""
    await make()  # the first one makes the control plane's client
    loop, held_up = threading.get_ident(), list[str]()

    def watch(owner: object, name: str) -> None:
        really = getattr(owner, name)

        def watched(*args: object, **kwargs: object) -> object:
            if threading.get_ident() == loop:
                held_up.append(name)
            return really(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(time, "sleep")
    watch(socket, "getaddrinfo")
    watch(httpx.Client, "send")
    watch(ssl.SSLContext, "load_verify_locations")  # reading all certificates, for each client anew
    made = await asyncio.gather(*(make() for _ in range(8)))
    await asyncio.gather(*(box.exec("true", timeout=60) for box in made))
    assert held_up == []
