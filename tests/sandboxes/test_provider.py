"""The local provider: probing, living and dying, releasing from anywhere, and many sandboxes at once."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.sandboxes import (
    Blaxel,
    InvalidRequest,
    Local,
    PermanentError,
    ReleaseOutcome,
    Sandbox,
    SandboxGone,
    SandboxSettings,
    SandboxSpec,
)
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.local.inside import landlock
from engine.sandboxes.naming import new_name
from tests.sandboxes.conftest import Make
from tests.sandboxes.traces import children, open_files, traces, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def processes_of(sandbox: Sandbox) -> list[int]:
    """bubblewrap's own process and, as its only child, the init of the sandbox, by the machine's numbers."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                word = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")[0]
            except OSError:
                continue
            if word.endswith(b"/" + sandbox.name.encode()):
                found.append(int(name))
    assert len(found) == 1
    inner = Path(f"/proc/{found[0]}/task/{found[0]}/children").read_text().split()
    return [*found, *map(int, inner)]


def end(pid: int) -> None:
    """Kill -9, and wait until it is dead."""
    descriptor = os.pidfd_open(pid)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    assert poller.poll(10_000)
    os.close(descriptor)


async def test_the_neutral_face_and_the_flavours(sandbox: Sandbox) -> None:
    assert (sandbox.provider, sandbox.isolation, sandbox.workdir) == ("local", "bubblewrap", "/work")
    assert sandbox.flavour() is sandbox.flavour(Local) is sandbox
    with pytest.raises(PermanentError, match="asks for a blaxel sandbox"):
        sandbox.flavour(Blaxel)


@pytest.mark.parametrize("which", [0, 1])
async def test_a_sandbox_that_something_killed_is_gone(make: Make, which: int) -> None:
    box = await make()
    await box.ensure_alive()
    waiting = asyncio.create_task(box.exec("sleep 1000", timeout=1000))
    await box.ensure_alive()
    await asyncio.to_thread(end, processes_of(box)[which])
    with pytest.raises(SandboxGone):
        await waiting
    with pytest.raises(SandboxGone):
        await box.ensure_alive()
    for act in (box.exec("true", timeout=1), box.read("x"), box.processes(), box.write_tree({"x": "y"})):
        with pytest.raises(SandboxGone):
            await act


async def test_a_provider_survives_the_death_of_its_broker(make: Make, provider: LocalProvider) -> None:
    box = await make()
    link = provider._link
    assert link is not None
    await asyncio.to_thread(end, link.pid)
    with pytest.raises(SandboxGone):
        await box.exec("true", timeout=60)
    async with asyncio.timeout(120):
        await link._process.wait()  # a creation asked for before the provider knows may fail once
    fresh = await make()
    assert (await fresh.exec("echo again", timeout=60)).stdout == "again\n"


async def test_release_is_idempotent_and_complete(provider: LocalProvider, project: Path) -> None:
    box = await provider.create(SandboxSpec(new_name("test"), {"kind": "one"}))
    await box.exec("setsid sleep 1001 & trap '' TERM; setsid sleep 1002 &", timeout=60)
    outcomes = await asyncio.gather(*(provider.release(box.name) for _ in range(3)))
    assert ReleaseOutcome.RELEASED in {released.outcome for released in outcomes}
    assert traces(project) == [t for t in traces(project) if "broker" in t]
    assert (await provider.release(box.name)).outcome is ReleaseOutcome.ALREADY_GONE
    assert (await provider.release("ltui-never-was")).outcome is ReleaseOutcome.ALREADY_GONE
    with pytest.raises(SandboxGone):
        await box.exec("true", timeout=60)
    with pytest.raises(InvalidRequest):
        await provider.release("../../etc")


async def test_another_process_lists_and_releases_it(
    make: Make, project: Path, provider: LocalProvider
) -> None:
    box = await make(labels={"kind": "one"})
    await make(labels={"kind": "two"})
    script = """
import asyncio, sys
from pathlib import Path
from engine.sandboxes.local import LocalProvider
async def main():
    provider = LocalProvider(Path(sys.argv[1]))
    for found in await provider.list({"kind": "one"}):
        print(found.name, found.state, found.owner_alive, found.labels, (await provider.release(found.name)).outcome)
asyncio.run(main())
"""
    words = [sys.executable, "-c", script, str(project)]
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == f"{box.name} running True {{'kind': 'one'}} released"
    with pytest.raises(SandboxGone):
        await box.ensure_alive()
    assert [found.labels for found in await provider.list()] == [{"kind": "two"}]


async def test_a_name_is_used_once(make: Make, provider: LocalProvider) -> None:
    box = await make()
    with pytest.raises(PermanentError, match="already"):
        await provider.create(SandboxSpec(box.name))
    await box.ensure_alive()
    for wrong in ("Upper", "a_b", "a--b", "-a", "a" * 50, "", "a/b", "ü"):
        with pytest.raises(InvalidRequest):
            await provider.create(SandboxSpec(wrong))


async def test_a_cancelled_creation_leaves_nothing_once_its_name_is_released(
    provider: LocalProvider, project: Path
) -> None:
    await provider.probe()
    for turns in range(12):
        name = new_name("test")
        task = asyncio.create_task(provider.create(SandboxSpec(name)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            await task  # a busy machine let it finish before
        await provider.release(name)
        assert [t for t in traces(project) if name in t] == []


async def test_sixty_four_at_once_leave_nothing(project: Path, settings: SandboxSettings) -> None:
    outside = children()
    provider = LocalProvider(project, settings)
    if (await provider.probe()).isolation != "bubblewrap":
        await provider.aclose()
        pytest.skip("no bubblewrap here")
    files, threads, before = open_files(), threading.active_count(), children()

    async def live(number: int) -> str:
        box = await provider.create(SandboxSpec(new_name("many", number)))
        try:
            await box.write_tree({"number": str(number)})
            done = await box.exec("sleep 1001 & cat number", timeout=60)
            return done.stdout
        finally:
            await provider.release(box.name)

    assert await asyncio.gather(*(live(number) for number in range(64))) == [str(n) for n in range(64)]
    assert open_files() - files == set()
    await until(lambda: len(children()) <= len(before))  # the broker and one keeper in stock
    assert threading.active_count() <= threads + 8  # the loop's pool of threads, which is bounded
    assert list((project / ".loops" / "sandboxes").iterdir()) == []
    await provider.aclose()
    assert traces(project) == []
    assert children() <= outside


async def test_the_loop_is_never_blocked_while_sandboxes_start(make: Make) -> None:
    """Not a bound on time, which this machine may not keep: the loop turns many times per sandbox."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(make() for _ in range(8)))
    counting.cancel()
    assert turns > 8 * 20


@pytest.mark.parametrize("isolation", ["landlock", "none"])
async def test_the_fallbacks(project: Path, isolation: str, tmp_path: Path) -> None:
    if isolation == "landlock" and landlock.abi_version() == 0:
        pytest.skip("this kernel has no Landlock")
    provider = LocalProvider(project, SandboxSettings(isolation=isolation, max_processes=48, disk_mb=16))
    report = await provider.probe()
    assert (report.isolation, report.problems) == (isolation, ())
    assert any("ordinary processes" in w or "process list" in w for w in report.warnings)
    box = await provider.create(SandboxSpec(new_name("test")))
    assert box.isolation == isolation
    await box.write_tree({"a/b": "x", "locked/in": "x"})
    assert await box.read("/work/a/b") == b"x"
    done = await box.exec("cat a/b; pwd; setsid sleep 1001 & chmod 000 locked", timeout=60)
    assert done.stdout == f"x{box.workdir}\n"
    cut = await box.exec("trap '' TERM; (setsid env -i sleep 1002 &); sleep 1003", timeout=0.3)
    assert cut.status == "timed_out"
    assert [p.command for p in await box.processes()] == ["sleep 1001"]
    if isolation == "landlock":
        secret = tmp_path / "open-to-all"
        secret.write_text("very-secret")
        os.chmod(secret, 0o644)
        stolen = await box.exec(
            f"cat {secret} {project}/.env; ls {tmp_path} /home /root; touch /tmp/mine", timeout=60
        )
        assert stolen.stdout == ""
        assert "mine" not in os.listdir("/tmp")
        link = await box.exec(f"ln -s {project} out; ls out; cat out/.env", timeout=60)
        assert link.stdout == ""
        killed = await box.exec(f"kill -0 {os.getpid()} && echo can", timeout=60)
        assert "can" not in killed.stdout
        net = await box.exec(["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/22 && echo connected"], timeout=60)
        assert "ermission" in net.stderr
    await box.exec("sleep 1004 &", timeout=60)
    await provider.release(box.name)
    assert [t for t in traces(project) if box.name in t] == []
    await provider.aclose()
    assert traces(project) == []


async def test_what_is_asked_for_and_missing_is_a_problem(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Never silently weaker: without bubblewrap "auto" says so, "bubblewrap" refuses, and "none" is never chosen."""
    monkeypatch.setenv("PATH", str(tmp_path))
    insisting = LocalProvider(project, SandboxSettings(isolation="bubblewrap"))
    report = await insisting.probe()
    assert not report.usable
    assert "not installed" in report.problems[0]
    with pytest.raises(PermanentError, match="not installed"):
        await insisting.create(SandboxSpec(new_name("test")))
    await insisting.aclose()
    monkeypatch.setattr(landlock, "abi_version", lambda: 0)
    willing = LocalProvider(project, SandboxSettings())
    report = await willing.probe()
    if report.usable:
        assert report.isolation == "landlock"
        assert any("bubblewrap" in warning for warning in report.warnings)
    else:
        assert 'isolation = "none"' in report.problems[0]
    await willing.aclose()


async def test_an_image_is_no_key_for_local_sandboxes(project: Path) -> None:
    provider = LocalProvider(project, SandboxSettings(image="debian"))
    report = await provider.probe()
    assert not report.usable
    assert "sandbox.image" in report.problems[0]
    await provider.aclose()


async def test_a_command_in_flight_ends_with_its_sandbox(make: Make, provider: LocalProvider) -> None:
    """Released, and cancelled just then: the caller hears of one or the other, never of anything else."""
    box = await make()
    told, cut = (asyncio.create_task(box.exec("sleep 1000", timeout=1000)) for _ in range(2))
    await box.ensure_alive()
    release = asyncio.create_task(provider.release(box.name))
    await asyncio.sleep(0)
    cut.cancel()
    results = await asyncio.gather(told, cut, return_exceptions=True)
    assert [type(result) for result in results] == [SandboxGone, asyncio.CancelledError]
    assert (await release).outcome is ReleaseOutcome.RELEASED
