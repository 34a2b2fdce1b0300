"""A Blaxel sandbox keeps the contract's word: commands, files, processes, life."""

from __future__ import annotations

import asyncio

import pytest

from engine.sandboxes import (
    Blaxel,
    InvalidRequest,
    Local,
    PermanentError,
    Process,
    SandboxFileError,
    SandboxGone,
)
from engine.sandboxes.blaxel import commands
from engine.sandboxes.blaxel.commands import MARK
from engine.sandboxes.blaxel.provider import BlaxelProvider
from engine.sandboxes.blaxel.sandbox import BlaxelSandbox
from tests.blaxel.conftest import Make
from tests.blaxel_emulator.faults import PLANE, Fault
from tests.blaxel_emulator.serving import Emulator

pytestmark = pytest.mark.asyncio(loop_scope="module")

START = r"^POST .*/process$"
WAIT = r"^GET .*/process/[^/]+/wait"


async def processes_are(box: BlaxelSandbox, number: int) -> None:
    """Wait until so many run."""
    found: list[Process] = []
    for _ in range(100):
        found = await box.processes()
        if len(found) == number:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{number} processes were expected: {found}")


def started(service: Emulator, words: str) -> int:
    """How often a command with these words was run, by the service's own account."""
    return sum(
        words in event.get("command", "") for event in service.world.events if event["event"] == "process"
    )


# -- commands ------------------------------------------------------------------------------------------------------


async def test_streams_exit_codes_and_directories(sandbox: BlaxelSandbox) -> None:
    done = await sandbox.exec(
        "echo out; echo err >&2; pwd; echo $EVERYWHERE$ONCE; exit 3", timeout=60, env={"ONCE": "!"}
    )
    assert (done.status, done.exit_code, done.stderr) == ("completed", 3, "err\n")
    assert done.stdout == "out\n/work\nyes!\n"
    assert not done.truncated
    merged = await sandbox.exec("echo a; echo b >&2; echo c", timeout=60, merge_stderr=True)
    assert (merged.stdout, merged.stderr, merged.output) == ("a\nb\nc\n", "", "a\nb\nc\n")
    words = await sandbox.exec(["printf", "%s|", "a b", "$HOME", "'"], timeout=60)
    assert words.stdout == "a b|$HOME|'|"
    wrong = await sandbox.exec("true", cwd="/nowhere", timeout=60)
    assert wrong.exit_code == 126
    assert "/nowhere" in wrong.stderr
    assert (await sandbox.exec("kill -SEGV $$", timeout=60)).status == "killed"


async def test_a_long_output_keeps_its_head_and_its_tail(sandbox: BlaxelSandbox) -> None:
    command = "echo begin; head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"
    whole = await sandbox.exec(command, timeout=60)
    assert (len(whole.stdout), whole.truncated) == (300_011, False)
    short = await sandbox.exec(command, timeout=60, max_output=1000)
    assert short.truncated
    assert short.stdout.startswith("begin\n")
    assert short.stdout.endswith("x\nend\n")
    assert "bytes left out" in short.stdout
    flood = await sandbox.exec("head -c 6000000 /dev/zero | tr '\\0' y; echo end", timeout=60)
    assert flood.truncated
    assert flood.stdout.endswith("yend\n")
    assert flood.stdout.startswith("[… at least 3")
    assert len(flood.stdout) < 1_100_000


async def test_a_deadline_ends_the_command_and_all_it_started(sandbox: BlaxelSandbox) -> None:
    cut = await sandbox.exec("echo so far; (setsid sleep 1000 &); sleep 1001", timeout=4)
    assert (cut.status, cut.exit_code, cut.stdout) == ("timed_out", None, "so far\n")
    assert await sandbox.processes() == []


async def test_a_cancelled_command_is_ended(make: Make, service: Emulator) -> None:
    box = await make()
    running = asyncio.create_task(box.exec("touch there; setsid sleep 1002 & sleep 1003; true", timeout=1000))
    await processes_are(box, 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await processes_are(box, 0)
    assert started(service, "touch there") == 1


@pytest.mark.parametrize("kind", ["lost_reply", "drop", "html", "status"])
async def test_a_command_runs_once_whatever_becomes_of_its_start(
    make: Make, service: Emulator, kind: str
) -> None:
    """A lost answer is asked after by the command's name before it is started again."""
    box = await make()
    service.world.faults.rules.append(Fault(kind, START, count=1))  # pyright: ignore[reportArgumentType]
    done = await box.exec(f"echo {kind} >> log; cat log", timeout=60)
    assert done.stdout == f"{kind}\n"
    assert service.world.faults.rules[0].used == 1


@pytest.mark.parametrize("kind", ["drop", "html", "status"])
async def test_a_broken_wait_goes_on(make: Make, service: Emulator, kind: str) -> None:
    box = await make()
    service.world.faults.rules.append(Fault(kind, WAIT, count=2, status=502))  # pyright: ignore[reportArgumentType]
    assert (await box.exec("echo through", timeout=60)).stdout == "through\n"


async def test_a_silent_command_outlasts_the_edge(make: Make, service: Emulator) -> None:
    """The edge cuts a silent request long before the command ends; it is waited for all the same."""
    box = await make()
    service.world.settings = type(service.world.settings)(edge_seconds=0.5)
    try:
        done = await box.exec("sleep 2; echo late", timeout=60)
    finally:
        service.world.settings = type(service.world.settings)()
    assert (done.status, done.stdout) == ("completed", "late\n")


# -- files ---------------------------------------------------------------------------------------------------------


async def test_trees_bytes_and_modes(sandbox: BlaxelSandbox) -> None:
    awkward = "we ird #?%41 'ü.txt"
    await sandbox.write_tree(
        [
            {"path": "run", "content": "#!/bin/sh\necho ran\n", "mode": 0o755},
            {"path": "deep/er/text", "content": "ünï\n"},
            {"path": "bytes", "content": bytes(range(256))},
            {"path": f"deep/{awkward}", "content": b"\xff\x00"},
            {"path": awkward, "content": "text"},
            {"path": "empty", "content": ""},
        ]
    )
    assert (await sandbox.exec("./run; cat deep/er/text; stat -c %a run bytes", timeout=60)).stdout == (
        "ran\nünï\n755\n644\n"
    )
    assert await sandbox.read("bytes") == bytes(range(256))
    assert await sandbox.read(f"/work/deep/{awkward}") == b"\xff\x00"
    assert await sandbox.read(awkward) == b"text"
    assert await sandbox.read("empty") == b""
    await sandbox.write_tree({"run": "plain again"})
    assert (await sandbox.exec("stat -c %a run", timeout=60)).stdout == "644\n"


async def test_a_tree_larger_than_a_request_may_be(sandbox: BlaxelSandbox, service: Emulator) -> None:
    files: dict[str, str | bytes] = {f"many/{number}": "\x01" * 90_000 for number in range(60)}
    files["large.txt"] = "x" * 3_000_000
    files["large.bin"] = b"\xfe" * 6_000_000
    await sandbox.write_tree(files)
    counted = await sandbox.exec(
        "ls many | wc -l; cat many/* | wc -c; wc -c < large.txt; wc -c < large.bin", timeout=60
    )
    assert counted.stdout.split() == ["60", "5400000", "3000000", "6000000"]


async def test_what_lies_in_the_way_is_replaced(sandbox: BlaxelSandbox) -> None:
    await sandbox.write_tree({"a/b": "1", "c": "2", "d/e": b"\xff"})
    await sandbox.write_tree({"a": "now a file", "c/below": "now a directory", "d": b"\xfe"})
    assert await sandbox.read("a") == b"now a file"
    assert await sandbox.read("c/below") == b"now a directory"
    assert await sandbox.read("d") == b"\xfe"


async def test_files_that_cannot_be(sandbox: BlaxelSandbox) -> None:
    with pytest.raises(SandboxFileError, match="does not exist") as missing:
        await sandbox.read("nope")
    assert missing.value.reason == "missing"
    await sandbox.write_tree({"dir/x": "12345"})
    with pytest.raises(SandboxFileError) as directory:
        await sandbox.read("dir")
    assert directory.value.reason == "directory"
    with pytest.raises(SandboxFileError) as large:
        await sandbox.read("dir/x", max_bytes=4)
    assert large.value.reason == "too_large"
    for wrong in ("../x", "/etc/x", "", "a/../../b"):
        with pytest.raises(InvalidRequest):
            await sandbox.write_tree({wrong: "x"})


# -- processes -----------------------------------------------------------------------------------------------------


async def test_processes_are_found_and_ended_detached_ones_too(sandbox: BlaxelSandbox) -> None:
    await sandbox.exec("sleep 1004 & (setsid sleep 1005 &)", timeout=60)
    await sandbox.exec("setsid sh -c 'env -i sleep 1006; true' &", timeout=60)
    found = {process.command: process for process in await sandbox.processes()}
    assert {"sleep 1004", "sleep 1005"} <= set(found)
    assert any("1006" in command or command == "sleep" for command in found)
    assert await sandbox.kill(found["sleep 1004"])
    assert not await sandbox.kill(found["sleep 1004"])
    assert not await sandbox.kill(4_000_000)
    await sandbox.kill_all()
    assert await sandbox.processes() == []
    with pytest.raises(InvalidRequest):
        await sandbox.kill(1)


async def test_kill_all_ends_what_the_sdk_was_asked_to_start(sandbox: BlaxelSandbox) -> None:
    box = await sandbox.client()
    await box.process.exec({"command": "sleep 1007"})
    await sandbox.kill_all()
    assert [str(process.status) for process in await box.process.list() if "1007" in process.command] == [
        "killed"
    ]


async def test_the_mark_is_in_every_command(sandbox: BlaxelSandbox) -> None:
    done = await sandbox.exec(f"echo ${MARK}", timeout=60)
    assert done.stdout.startswith(f"{sandbox.name}.")


# -- life ----------------------------------------------------------------------------------------------------------


async def test_the_flavours(sandbox: BlaxelSandbox) -> None:
    assert (sandbox.provider, sandbox.isolation) == ("blaxel", "remote")
    assert sandbox.flavour() is sandbox.flavour(Blaxel) is sandbox
    with pytest.raises(PermanentError, match="asks for a local sandbox"):
        sandbox.flavour(Local)
    box = await sandbox.client()
    assert type(box).__module__.startswith("blaxel.")
    assert box.metadata.name == sandbox.name


@pytest.mark.parametrize("how", ["terminated", "failed"])
async def test_a_sandbox_that_died_is_gone(make: Make, service: Emulator, how: str) -> None:
    box = await make()
    await box.ensure_alive()
    found = service.world.find(box.name)
    assert found is not None
    await service.world.die(found, how)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SandboxGone):
        await box.ensure_alive()


async def test_after_its_release_it_is_gone(make: Make, provider: BlaxelProvider) -> None:
    box = await make()
    waiting = asyncio.create_task(box.exec("sleep 1008; true", timeout=1000))
    await processes_are(box, 2)
    await provider.release(box.name)
    with pytest.raises(SandboxGone):
        await waiting
    for act in (box.ensure_alive(), box.read("x"), box.write_tree({"x": "y"}), box.processes()):
        with pytest.raises(SandboxGone):
            await act


async def test_a_plane_that_answers_with_pages_is_no_dead_sandbox(make: Make, service: Emulator) -> None:
    box = await make()
    service.world.faults.rules.append(Fault("html", PLANE, count=2, status=502))
    await box.ensure_alive()


async def test_a_sandbox_that_fails_under_a_long_command_is_noticed(
    make: Make, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plane answers 503, which the SDK's own wait takes for a passing trouble until the command's deadline."""
    monkeypatch.setattr(commands, "_PIECE_SECONDS", 1.0)
    box = await make()
    running = asyncio.create_task(box.exec("sleep 1009; true", timeout=400))
    await processes_are(box, 2)
    found = service.world.find(box.name)
    assert found is not None
    await service.world.die(found, "failed")
    async with asyncio.timeout(60):
        with pytest.raises(SandboxGone, match="FAILED"):
            await running
