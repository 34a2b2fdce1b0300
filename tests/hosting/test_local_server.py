"""The local Loops server: one for a project directory, alive while somebody needs it and no longer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.errors import HostingError
from engine.hosting.local_server import LocalServer
from engine.store.processes import same_process

ROOT = Path(__file__).resolve().parents[2]

_HOLDER = """
import sys
from pathlib import Path
from engine.hosting.local_server import LocalServer
server = LocalServer(Path(sys.argv[1]))
address = server.start()
print(address.pid, address.url, flush=True)
sys.stdin.read()
server.close()
print("closed", flush=True)
"""


@pytest.fixture
def project_dir(tmp_path: Path) -> Path:
    (tmp_path / ".loops").mkdir()
    return tmp_path


class Holder:
    """Another process that uses the project's server."""

    def __init__(self, project_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(project_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        pid, self.url = self.process.stdout.readline().split()
        self.pid = int(pid)

    def leave(self) -> None:
        self.process.communicate()


@pytest.fixture
def holder(project_dir: Path) -> Iterator[Holder]:
    held = Holder(project_dir)
    yield held
    if held.process.poll() is None:
        held.process.kill()
    held.process.communicate()


def answers(url: str, key: str) -> bool:
    question = urllib.request.Request(
        f"{url}/v1/loops/capabilities", headers={"Authorization": f"Api-Key {key}"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(question, timeout=60) as answer:
        return answer.status == 200


def wait_gone(pid: int, started: float) -> None:
    bound = time.monotonic() + 60
    while same_process(pid, started):
        assert time.monotonic() < bound, f"process {pid} goes on"
        time.sleep(0.01)


def test_its_whole_life(project_dir: Path) -> None:
    server = LocalServer(project_dir)
    address = server.start()
    assert server.start() is address
    assert answers(address.url, address.key)
    assert address.key not in repr(address)
    arguments = Path(f"/proc/{address.pid}/cmdline")
    if arguments.exists():
        assert address.key.encode() not in arguments.read_bytes()
    for path in (server.directory / "address.json", server.log_path, server.directory / "alive"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    async def watch() -> str:
        watching = asyncio.create_task(server.until_dead())
        os.kill(address.pid, signal.SIGKILL)
        return await watching

    assert asyncio.run(watch()) == (
        f"the local Loops server ended (killed by signal 9); its log is {server.log_path}"
    )
    assert server.dead
    again = server.start()
    assert again.pid != address.pid
    server.close()
    assert not again.alive


def test_two_processes_share_one_and_the_last_one_ends_it(project_dir: Path, holder: Holder) -> None:
    """The holder started it, we attach; the holder is killed, and the server goes on for us."""
    server = LocalServer(project_dir)
    address = server.start()
    assert (address.pid, address.url) == (holder.pid, holder.url)
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait(120)
    assert answers(address.url, address.key)
    assert address.alive
    server.close()
    wait_gone(address.pid, address.pid_started)


def test_a_server_that_has_said_that_it_ends_gets_no_new_user(project_dir: Path) -> None:
    """It may still answer for a moment; whoever began to use it now would lose it under the first request."""
    server = LocalServer(project_dir)
    address = server.start()
    (server.directory / "ending").touch()
    latecomer = LocalServer(project_dir)
    assert latecomer._attach() is None
    server.close()
    assert latecomer.start().pid != address.pid
    assert not (server.directory / "ending").exists()
    latecomer.close()
    assert (server.directory / "ending").exists()


def test_it_dies_with_its_killed_parent(project_dir: Path, holder: Holder) -> None:
    started = json.loads((project_dir / ".loops" / "loops-server" / "address.json").read_text())[
        "pid_started"
    ]
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait(120)
    wait_gone(holder.pid, started)


def test_the_one_that_started_it_may_leave_first(project_dir: Path) -> None:
    server = LocalServer(project_dir)
    address = server.start()
    other = Holder(project_dir)
    assert other.pid == address.pid
    server.close()
    assert answers(address.url, address.key)
    other.leave()
    wait_gone(address.pid, address.pid_started)


def test_two_that_start_at_once_get_one(project_dir: Path) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(project_dir)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    lines = [process.stdout.readline() for process in holders if process.stdout is not None]
    assert lines[0]
    assert lines[0] == lines[1]
    for process in holders:
        out, _ = process.communicate()
        assert out.strip() == "closed"
        assert process.returncode == 0


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / ".loops").write_text("a file in the way")
    with pytest.raises(HostingError, match="cannot use"):
        LocalServer(tmp_path).start()


def test_a_server_that_says_why_it_cannot_start(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen

    def odd(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        return real([*command, "--model", "no-directory"], **options)

    monkeypatch.setattr("engine.hosting.local_server.subprocess.Popen", odd)
    with pytest.raises(HostingError, match="--model takes NAME=DIR"):
        LocalServer(project_dir).start()


def test_a_silent_server_is_ended(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    silent: list[subprocess.Popen[Any]] = []

    def odd(command: list[str], **options: Any) -> subprocess.Popen[Any]:
        silent.append(real([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        return silent[0]

    monkeypatch.setattr("engine.hosting.local_server.subprocess.Popen", odd)
    with pytest.raises(HostingError, match="did not come up in time"):
        LocalServer(project_dir).start(timeout=0.1)
    assert silent[0].poll() is not None
