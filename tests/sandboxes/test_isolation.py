"""What a sandbox cannot reach. Run as whoever runs the tests, and as an ordinary user by test_ordinary_user."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
from pathlib import Path

import pytest

from engine.sandboxes import Sandbox
from engine.store import Store
from tests.sandboxes.conftest import Make

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def gone(box: Sandbox, path: Path) -> None:
    """The path does not exist in there, by whatever way one tries."""
    done = await box.exec(
        [
            "/bin/sh",
            "-c",
            'cat "$1"; ls -d "$1"; find / -path /usr -prune -o -path /proc -prune -o -name "$2" -print',
            "x",
            str(path),
            path.name,
        ],
        timeout=60,
    )
    assert done.stdout == ""
    assert done.stderr.count("No such file") == 2
    linked = await box.exec(["/bin/sh", "-c", 'ln -s "$1" link && cat link', "x", str(path)], timeout=60)
    assert linked.exit_code != 0


async def test_the_users_home(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "id_of_mine").write_text("very-secret")
    monkeypatch.setenv("HOME", str(home))
    await gone(sandbox, home / "id_of_mine")
    real = pwd.getpwuid(os.getuid()).pw_dir
    listed = await sandbox.exec(f"ls -A /home; echo ~; ls -A ~; ls -A {real}", timeout=60)
    assert listed.stdout == "/tmp\n"
    assert str(Path.home()) not in (await sandbox.exec("env; cat /etc/passwd", timeout=60)).stdout


async def test_the_projects_env_file(sandbox: Sandbox, project: Path) -> None:
    await gone(sandbox, project / ".env")


async def test_the_store_and_the_state_of_sandboxes(sandbox: Sandbox, project: Path) -> None:
    Store.open(project).close()
    await gone(sandbox, project / ".loops" / "loops.db")
    await gone(sandbox, project / ".loops" / "sandboxes")


async def test_another_sandboxs_files_and_processes(make: Make) -> None:
    one, other = await make(), await make()
    await one.write_tree({"treasure": "of one"})
    await one.exec("echo more > /tmp/treasure; echo most > /dev/shm/treasure; sleep 1001 &", timeout=60)
    done = await other.exec(
        "find / -path /usr -prune -o -path /proc -prune -o -name treasure -print; ps -e -o args=", timeout=60
    )
    assert "treasure" not in done.stdout.replace("-name treasure -print", "")
    assert "sleep 1001" not in done.stdout
    for process in await one.processes():
        await other.exec(f"kill -KILL {process.pid}; kill -KILL -1", timeout=60)
    assert (await one.exec("cat treasure", timeout=60)).stdout == "of one"
    assert [p.command for p in await one.processes()] == ["sleep 1001"]


async def test_the_network(make: Make) -> None:
    box, other = await make(), await make()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.setblocking(False)
        done = await box.exec(
            ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"], timeout=60
        )
        assert "connected" not in done.stdout
        done = await other.exec(["bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/80 && echo connected"], timeout=60)
        assert "connected" not in done.stdout
        with pytest.raises(BlockingIOError):
            server.accept()
    interfaces = await box.exec("tail -n +3 /proc/net/dev | cut -d: -f1", timeout=60)
    assert interfaces.stdout.split() == ["lo"]


needs_python = pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no python3 in /usr/bin")


@needs_python
async def test_the_machines_abstract_sockets(sandbox: Sandbox) -> None:
    name = f"loops-tui-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        script = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')"
        done = await sandbox.exec(["/usr/bin/python3", "-c", script], timeout=60)
    assert "ConnectionRefusedError" in done.stderr


async def test_the_machines_processes(sandbox: Sandbox) -> None:
    done = await sandbox.exec(
        f"ls -d /proc/[0-9]* | wc -l; kill -0 {os.getpid()}; ps -e -o args=", timeout=60
    )
    assert int(done.stdout.split()[0]) < 10
    assert "pytest" not in done.stdout


async def test_no_rights_can_be_gained(sandbox: Sandbox) -> None:
    done = await sandbox.exec(
        "grep -E 'Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs|Seccomp:' /proc/self/status", timeout=60
    )
    values = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert {values.pop("NoNewPrivs"), values.pop("Seccomp")} == {"1", "2"}
    assert set(values.values()) == {"0" * 16}
    assert "uid=1000" in (await sandbox.exec("id", timeout=60)).stdout


@pytest.mark.parametrize(
    "attempt",
    [
        "touch /usr/bin/mine",
        "touch /etc/mine",
        "touch /mine",
        "touch /dev/mine",
        "mknod /work/disk b 254 0",
        "mount -t tmpfs none /work",
        "umount /proc",
        "unshare -Ur true",
        "chroot / true",
        "hostname other",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "strace -p 1",
        "ls /sys/kernel",
        "dmesg",
    ],
)
async def test_what_only_the_machines_owner_may_do(sandbox: Sandbox, attempt: str) -> None:
    program = attempt.split(maxsplit=1)[0]
    if program not in {"touch", "echo", "ls"} and shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    assert (await sandbox.exec(attempt, timeout=60)).exit_code not in {0, 127}


async def test_a_full_disk_stays_inside(make: Make) -> None:
    """16 MiB of /work, half of it in /tmp, and memory-backed places no larger."""
    box, other = await make(), await make()
    for place, most in (("/work", 17), ("/tmp", 9), ("/dev/shm", 17)):
        done = await box.exec(f"cat /dev/zero > {place}/fill; stat -c %s {place}/fill", timeout=60)
        assert "No space" in done.stderr or "File too large" in done.stderr
        assert int(done.stdout) <= most * 1024 * 1024
    done = await box.exec(
        "rm fill; i=0; while true > f$i 2>/dev/null; do i=$((i+1)); done; echo $i", timeout=60
    )
    assert 0 < int(done.stdout.split()[-1]) < 20_000
    assert (await other.exec("echo fine > file && cat file", timeout=60)).stdout == "fine\n"


async def test_open_files_are_bounded(sandbox: Sandbox) -> None:
    done = await sandbox.exec("cat /proc/self/limits; (ulimit -Hn 1000000) || echo refused", timeout=60)
    hard = {line[:26].strip(): line[47:68].strip() for line in done.stdout.splitlines()}
    assert (hard["Max open files"], hard["Max processes"], hard["Max core file size"]) == ("1024", "48", "0")
    assert "refused" in done.stdout


@needs_python
async def test_the_loopback_works_within_one_sandbox(sandbox: Sandbox) -> None:
    """A server that an agent starts is there for its next command."""
    await sandbox.write_tree({"page": "served"})
    await sandbox.exec("/usr/bin/python3 -m http.server 8000 >log 2>&1 &", timeout=60)
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/page').read().decode())"
    async with asyncio.timeout(120):
        while not (done := await sandbox.exec(["/usr/bin/python3", "-c", fetch], timeout=60)).ok:
            pass
    assert done.stdout == "served\n"
