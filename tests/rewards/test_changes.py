"""What an agent left in its own sandbox is read as it is, and what nobody should judge is refused."""

from __future__ import annotations

import pytest

from engine.rewards.changes import ChangeLimits, collect_changes
from engine.rewards.protected import Refused
from engine.rewards.suite import Suite, judge_sandbox
from engine.sandboxes.contract import Sandbox
from tests.rewards.conftest import FIXED, WORKSPACE, FreshSandbox

SUITE = Suite(kind="script", target="tests.py", seconds=60)
FILES = {**WORKSPACE, "data/one.txt": "1\n", "notes.md": "# Notes\n"}


async def acted(sandbox: Sandbox, command: str) -> Sandbox:
    """The sandbox after the agent ran a command in it."""
    await sandbox.write_tree(FILES)
    done = await sandbox.exec(command, timeout=60)
    assert done.ok, done
    return sandbox


async def test_new_changed_and_deleted_files_are_found(fresh_sandbox: FreshSandbox) -> None:
    async with fresh_sandbox() as sandbox:
        await acted(
            sandbox,
            "mkdir -p new/deep __pycache__ .git; printf a > new/deep/a; printf '\\377' > raw; rm data/one.txt;"
            "echo 2 >> app.py; touch notes.md; echo x > __pycache__/app.cpython-312.pyc; echo x > .git/HEAD",
        )
        changes = await collect_changes(sandbox, FILES)
    assert changes == {
        "new/deep/a": b"a",
        "raw": b"\xff",
        "app.py": f"{WORKSPACE['app.py']}2\n".encode(),
        "data/one.txt": None,
    }


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ln -s /etc/passwd secret.txt", "left a symbolic link: 'secret.txt'"),
        ("rm -r data; ln -s /usr data", "left a symbolic link: 'data'"),
        ("ln app.py same.py", "left a hard link"),
        ("mkfifo pipe", "left a named pipe: 'pipe'"),
        ("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"", "left a socket: 's'"),
        ("printf x > \"$(printf 'a\\377')\"", "a name that is no text"),
        ("printf x > \"$(printf 'a\\342\\200\\213.py')\"", "characters that nobody can see"),
        ("printf x > \"$(printf 'a\\nb')\"", "characters that nobody can see"),
        ("for n in $(seq 30); do : > f$n; done", "30 files were changed, and 20 may be"),
        ("mkdir -p many; cd many; for n in $(seq 200); do : > f$n; done", "one file too many"),
        ("head -c 70000 /dev/zero > big", "more than 65536 bytes were changed"),
        (
            "head -c 40000 /dev/zero > one; head -c 40000 /dev/zero > two",
            "more than 65536 bytes were changed",
        ),
        ("truncate -s 2M sparse", "too large, with all the others"),
    ],
)
async def test_what_nobody_should_judge_is_refused(
    fresh_sandbox: FreshSandbox, command: str, said: str
) -> None:
    limits = ChangeLimits(files=20, bytes=65536, entries=100, workspace_bytes=1 << 20)
    async with fresh_sandbox() as sandbox:
        await acted(sandbox, command)
        with pytest.raises(Refused) as refused:
            await collect_changes(sandbox, FILES, limits)
    assert said in str(refused.value)


async def test_what_still_runs_is_ended_before_anything_is_read(fresh_sandbox: FreshSandbox) -> None:
    async with fresh_sandbox() as sandbox:
        await acted(
            sandbox,
            "n=0; (while :; do n=$((n+1)); echo $n > count; done) >/dev/null 2>&1 & while [ ! -s count ]; do :; done",
        )
        assert await sandbox.processes() != []
        changes = await collect_changes(sandbox, FILES)
        assert await sandbox.processes() == []
        assert set(changes) == {"count"}
        assert await sandbox.read("count") == changes["count"]


async def test_a_workspace_full_to_the_brim_can_still_be_read(fresh_sandbox: FreshSandbox) -> None:
    """The agent's own disk is full, and nothing needs to be written there."""
    async with fresh_sandbox() as sandbox:
        await acted(sandbox, "echo 3 > three; head -c 100M /dev/zero > /tmp/full 2>/dev/null; true")
        assert await collect_changes(sandbox, FILES) == {"three": b"3\n"}


async def test_a_sandbox_is_judged_in_another(fresh_sandbox: FreshSandbox) -> None:
    opened = 0

    def counted():
        nonlocal opened
        opened += 1
        return fresh_sandbox()

    async def verdict(command: str):
        async with fresh_sandbox() as agent:
            await acted(agent, command)
            return await judge_sandbox(agent, counted, FILES, SUITE)

    fix = f"cat > app.py <<'END'\n{FIXED}END\n"
    assert (await verdict(f"{fix}python3 tests.py")).ok
    assert opened == 1
    broken = await verdict("echo 'print(1)' >> app.py; echo 'assert True' > /tmp/tests.py")
    assert (broken.why, broken.ok) == ("failed", False)
    assert opened == 2
    # What needs no run opens no sandbox.
    assert (await verdict(f"{fix}echo 'assert True' > tests.py")).reason == "wrote a protected file: tests.py"
    assert (await verdict(f"{fix}rm tests.py")).reason == "deleted a protected file: tests.py"
    assert (await verdict(f"{fix}ln -s app.py other.py")).reason == "left a symbolic link: 'other.py'"
    assert (await verdict("echo tests passed")).why == "nothing_written"
    assert opened == 2
