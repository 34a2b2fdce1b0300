"""Commands: results, streams, deadlines, floods, and what stays in the background."""

from __future__ import annotations

import asyncio

import pytest

from engine.sandboxes import InvalidRequest, Process, Sandbox, SandboxGone
from tests.sandboxes.conftest import Make

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: A deadline that a command is to be cut by after it has begun, also where it has to wait for a processor.
REACHED = 4.0


async def test_a_failed_command_is_a_result(sandbox: Sandbox) -> None:
    done = await sandbox.exec("echo out; echo err >&2; exit 3", timeout=60)
    assert (done.status, done.exit_code, done.stdout, done.stderr) == ("completed", 3, "out\n", "err\n")
    assert not done.ok
    assert sorted(done.output.splitlines()) == ["err", "out"]
    assert (await sandbox.exec("exit 0", timeout=60)).ok


async def test_merged_streams_keep_their_order(sandbox: Sandbox) -> None:
    done = await sandbox.exec(
        "for i in 1 2 3; do echo o$i; echo e$i >&2; done", timeout=60, merge_stderr=True
    )
    assert done.output == done.stdout == "o1\ne1\no2\ne2\no3\ne3\n"
    assert done.stderr == ""


async def test_words_are_run_without_a_shell(sandbox: Sandbox) -> None:
    done = await sandbox.exec(["printf", "%s|", "a b", "$HOME", ""], timeout=60)
    assert done.stdout == "a b|$HOME||"
    missing = await sandbox.exec(["no-such-program"], timeout=60)
    assert (missing.status, missing.exit_code) == ("completed", 127)
    assert "no-such-program" in missing.stderr


async def test_directory_and_environment(sandbox: Sandbox) -> None:
    await sandbox.write_tree({"sub/file": "x"})
    done = await sandbox.exec("pwd; echo $ANSWER; env | sort", cwd="sub", env={"ANSWER": "42"}, timeout=60)
    assert done.stdout.startswith("/work/sub\n42\n")
    assert "BASETEN" not in done.stdout
    wrong = await sandbox.exec("true", cwd="/nowhere", timeout=60)
    assert wrong.exit_code == 126
    assert "/nowhere" in wrong.stderr


async def test_the_environment_is_scrubbed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "very-secret-token")
    box = await make(env={"GIVEN": "yes"})
    done = await box.exec("env; cat /proc/1/environ; cat /proc/[0-9]*/environ", timeout=60)
    assert "GIVEN=yes" in done.stdout
    assert "very-secret" not in done.output


async def test_death_by_signal_is_told(sandbox: Sandbox) -> None:
    done = await sandbox.exec("kill -SEGV $$", timeout=60)
    assert (done.status, done.exit_code) == ("killed", 128 + 11)


async def test_what_ignores_sigterm_ends_at_its_deadline_with_all_it_started(sandbox: Sandbox) -> None:
    command = """
        trap '' TERM
        setsid sh -c 'trap "" TERM; (setsid sh -c "trap \\"\\" TERM; sleep 3003" &); sleep 3002' &
        (env -i setsid sleep 3001 &)
        echo begun
        sleep 3000
    """
    done = await sandbox.exec(command, timeout=REACHED)
    assert (done.status, done.exit_code, done.stdout) == ("timed_out", None, "begun\n")
    assert await sandbox.processes() == []


async def test_a_polite_command_may_say_its_last_words(sandbox: Sandbox) -> None:
    done = await sandbox.exec("trap 'echo bye; exit 0' TERM; sleep 1000 & wait", timeout=REACHED)
    assert (done.status, done.stdout) == ("timed_out", "bye\n")
    assert await sandbox.processes() == []


async def test_a_background_job_stays_until_it_is_killed(sandbox: Sandbox) -> None:
    started = await sandbox.exec("sleep 1001 & sleep 1002 & echo $!", timeout=60)
    assert started.ok
    found = await until(sandbox, 2)
    assert sorted(p.command for p in found) == ["sleep 1001", "sleep 1002"]
    assert all(p.status == "running" and p.started_at > 0 for p in found)
    seen = await sandbox.exec("ps -o args= -e", timeout=60)
    assert "sleep 1001" in seen.stdout
    one = next(p for p in found if p.command == "sleep 1001")
    assert await sandbox.kill(one) is True
    assert await sandbox.kill(one.pid) is False
    assert [p.command for p in await sandbox.processes()] == ["sleep 1002"]
    await sandbox.kill_all()
    assert await sandbox.processes() == []


async def test_another_commands_deadline_spares_a_background_job(sandbox: Sandbox) -> None:
    await sandbox.exec("sleep 1001 &", timeout=60)
    await until(sandbox, 1)
    cut = await sandbox.exec("sleep 1002 & sleep 1003", timeout=0.3)
    assert cut.status == "timed_out"
    assert [p.command for p in await sandbox.processes()] == ["sleep 1001"]


async def test_commands_at_once_are_told_apart(sandbox: Sandbox) -> None:
    """One is cut; the other, which began in the meantime, runs to its end with its child."""
    await sandbox.exec("mkfifo gate", timeout=60)
    cut = asyncio.create_task(sandbox.exec("setsid sleep 1001 & sleep 1002", timeout=REACHED))
    await until(sandbox, 2)
    other = asyncio.create_task(sandbox.exec("sleep 1003 & read line < gate; echo through", timeout=60))
    assert (await cut).status == "timed_out"
    assert not [p for p in await sandbox.processes() if p.command in {"sleep 1001", "sleep 1002"}]
    await sandbox.exec("echo go > gate", timeout=60)
    done = await other
    assert done.status == "completed"
    assert "sleep 1003" in [p.command for p in await sandbox.processes()]


async def until(sandbox: Sandbox, number: int) -> list[Process]:
    """What runs, once so many have become what they were started for."""
    async with asyncio.timeout(120):
        while len(found := [p for p in await sandbox.processes() if p.command.startswith("sleep")]) < number:
            pass
    return found


async def test_a_job_may_go_on_talking_after_its_command(sandbox: Sandbox) -> None:
    """Its output leads nowhere any more, but it must not die of that."""
    await sandbox.exec("mkfifo gate; (read line < gate; echo nobody hears; echo done > result) &", timeout=60)
    done = await sandbox.exec("echo go > gate; while ! test -s result; do :; done; cat result", timeout=60)
    assert done.stdout == "done\n"


async def test_a_cancelled_command_is_ended(sandbox: Sandbox) -> None:
    task = asyncio.create_task(sandbox.exec("trap '' TERM; setsid sleep 1001 & sleep 1002", timeout=1000))
    await until(sandbox, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(120):
        while await sandbox.processes():
            pass


async def test_what_follows_a_cut_command_is_not_cut_with_it(sandbox: Sandbox) -> None:
    for _ in range(10):
        task = asyncio.create_task(sandbox.exec("setsid sleep 1001 & sleep 1002", timeout=1000))
        await until(sandbox, 1)
        task.cancel()
        done = await sandbox.exec(
            "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sh -c 'echo whole'", timeout=60
        )
        assert (done.status, done.stdout) == ("completed", "whole\n")


async def test_a_cut_spares_another_command_that_shows_no_environment(sandbox: Sandbox) -> None:
    """As each does for a moment while it becomes another program."""
    await sandbox.exec("mkfifo gate", timeout=60)
    cut = asyncio.create_task(sandbox.exec("setsid sleep 1001 & sleep 1002", timeout=1000))
    await until(sandbox, 2)
    bare = "setsid sleep 1003 & sleep 1004 & read line < gate; echo whole"
    other = asyncio.create_task(sandbox.exec(["env", "-i", "sh", "-c", bare], timeout=60))
    await until(sandbox, 4)
    cut.cancel()
    await gone(sandbox, "sleep 1001", "sleep 1002")
    await sandbox.exec("echo go > gate", timeout=60)
    done = await other
    assert (done.status, done.stdout) == ("completed", "whole\n")
    assert {p.command for p in await sandbox.processes()} == {"sleep 1003", "sleep 1004"}


async def test_a_cut_spares_what_a_background_job_starts_meanwhile(sandbox: Sandbox) -> None:
    await sandbox.exec("mkfifo gate; (while read line < gate; do sleep 1001 & done) &", timeout=60)
    cut = asyncio.create_task(sandbox.exec("echo go > gate; setsid sleep 1002 & sleep 1003", timeout=1000))
    await until(sandbox, 3)
    cut.cancel()
    await gone(sandbox, "sleep 1002", "sleep 1003")
    await sandbox.exec("true", timeout=60)  # begins only when the cut is over
    assert "sleep 1001" in [p.command for p in await sandbox.processes()]


async def gone(sandbox: Sandbox, *commands: str) -> None:
    """Return once none of the commands runs any more."""
    async with asyncio.timeout(120):
        while any(p.command in commands for p in await sandbox.processes()):
            pass


async def test_a_flood_is_bounded_and_its_ends_are_kept(sandbox: Sandbox) -> None:
    done = await sandbox.exec(
        "echo first; head -c 60000000 /dev/zero | tr '\\0' x; echo; echo last", timeout=60, max_output=10_000
    )
    assert done.status == "completed"
    assert done.truncated
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert "bytes left out" in done.stdout
    assert len(done.stdout) < 11_000


async def test_an_endless_flood_ends_at_its_deadline(sandbox: Sandbox) -> None:
    done = await sandbox.exec("yes", timeout=0.5, max_output=1000)
    assert (done.status, done.truncated) == ("timed_out", True)
    assert len(done.stdout) < 1200


async def test_a_line_of_three_megabytes(sandbox: Sandbox) -> None:
    done = await sandbox.exec("head -c 3000000 /dev/zero | tr '\\0' y", timeout=60, max_output=4_000_000)
    assert not done.truncated
    assert done.stdout == "y" * 3_000_000


async def test_output_that_is_no_utf8(sandbox: Sandbox) -> None:
    done = await sandbox.exec("printf 'a\\377\\376b\\303'", timeout=60)
    assert done.stdout == "a\ufffd\ufffdb\ufffd"


@pytest.mark.parametrize("limit", range(20, 29))
async def test_a_cut_never_halves_a_character(sandbox: Sandbox, limit: int) -> None:
    done = await sandbox.exec("printf '%s' 'äö€ä😀üäö€ä😀üäö€ä😀ü'", timeout=60, max_output=limit)
    assert done.truncated
    assert "\ufffd" not in done.stdout


async def test_a_fork_bomb_is_contained_and_ended(sandbox: Sandbox) -> None:
    done = await sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 1000", timeout=1)
    assert done.status == "timed_out"
    assert await sandbox.processes() == []
    assert (await sandbox.exec("echo alive", timeout=60)).stdout == "alive\n"


async def test_a_bomb_left_in_the_background_does_not_survive_kill_all(sandbox: Sandbox) -> None:
    await sandbox.exec("bomb() { bomb | bomb & }; bomb", timeout=1)
    await sandbox.kill_all()
    assert await sandbox.processes() == []
    assert (await sandbox.exec("sh -c 'echo alive'", timeout=60)).stdout == "alive\n"


async def test_killing_everything_from_inside_leaves_the_sandbox_alive(sandbox: Sandbox) -> None:
    done = await sandbox.exec("kill -KILL -1; kill -KILL 1", timeout=60)
    assert done.status in {"completed", "killed"}
    await sandbox.ensure_alive()
    assert (await sandbox.exec("echo alive", timeout=60)).stdout == "alive\n"


async def test_memory_is_bounded(sandbox: Sandbox) -> None:
    done = await sandbox.exec("head -c 600000000 /dev/zero | tail -c 500000000 | wc -c", timeout=60)
    assert "500000000" not in done.stdout


async def test_what_cannot_be_asked(sandbox: Sandbox) -> None:
    for wrong in ("a\0b", [], ["a\0"]):
        with pytest.raises(InvalidRequest):
            await sandbox.exec(wrong, timeout=60)
    with pytest.raises(InvalidRequest):
        await sandbox.exec("true", timeout=0)
    with pytest.raises(InvalidRequest):
        await sandbox.exec("true", timeout=1, cwd="../..")
    with pytest.raises(InvalidRequest):
        await sandbox.kill(1)


async def test_what_a_model_gets_wrong_is_a_result(sandbox: Sandbox) -> None:
    long = await sandbox.exec("echo " + "x" * 300_000, timeout=60)
    assert (long.status, long.exit_code) == ("completed", 126)
    assert "too long" in long.output
    halved = await sandbox.exec("echo '\ud83d'", env={"HALF": "\ud83d"}, timeout=60)
    assert halved.stdout == "?\n"
    await sandbox.write_tree({"half": "a\ud83db"})
    assert await sandbox.read("half") == b"a?b"
    assert (await sandbox.exec("if then", timeout=60)).exit_code == 2


async def test_its_time_to_live_ends_a_sandbox(make: Make) -> None:
    box = await make(ttl_seconds=0.5)
    with pytest.raises(SandboxGone, match="time to live"):
        await box.exec("sleep 1000", timeout=1000)
    with pytest.raises(SandboxGone):
        await box.ensure_alive()
