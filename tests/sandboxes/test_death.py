"""The death of the process that holds leases, at every step of theirs; and the cleanup after it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.sandboxes.cleanup import cleanup
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.local.inside import landlock
from engine.store import Store
from engine.store.rows import LeaseState
from tests.sandboxes.conftest import needs_bubblewrap
from tests.sandboxes.traces import traces, until
from tests.sandboxes.victim import CREATING, RELEASING


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Each test's own."""
    return tmp_path


def start(project: Path, step: str, isolation: str = "auto") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.sandboxes.victim", str(project), step, isolation]
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )


def wait_for_stop(victim: subprocess.Popen[str]) -> None:
    _, status = os.waitpid(victim.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "the victim ended before it came to its step"


def finish(victim: subprocess.Popen[str]) -> None:
    victim.kill()
    victim.wait(120)
    for stream in (victim.stdin, victim.stdout):
        assert stream is not None
        stream.close()


async def clean(project: Path) -> None:
    """Cleanup, twice at once; then nothing is left and every lease says so."""
    with Store.open(project) as store:
        reports = await asyncio.gather(cleanup(store, project), cleanup(store, project))
        assert all(report.failed == [] and report.skipped_live == [] for report in reports)
        assert {row.state for row in store.reader().leases()} <= {LeaseState.RELEASED}
        again = await cleanup(store, project)
        assert (again.released, again.already_gone, again.failed) == ([], [], [])
    assert traces(project) == []


@pytest.mark.parametrize("step", [*CREATING, "used", *RELEASING])
async def test_killed_at(project: Path, step: str) -> None:
    victim = await asyncio.to_thread(start, project, step)
    await asyncio.to_thread(wait_for_stop, victim)
    await asyncio.to_thread(finish, victim)
    await clean(project)


@pytest.mark.parametrize("step", ["keeper asked for", "used", "keeper ended"])
async def test_killed_without_namespaces_at(project: Path, step: str) -> None:
    if landlock.abi_version() == 0:
        pytest.skip("this kernel has no Landlock")
    victim = await asyncio.to_thread(start, project, step, "landlock")
    await asyncio.to_thread(wait_for_stop, victim)
    await asyncio.to_thread(finish, victim)
    await clean(project)


async def test_of_two_processes_one_is_killed(project: Path) -> None:
    killed, other = await asyncio.gather(*(asyncio.to_thread(start, project, "using") for _ in range(2)))
    names = []
    for victim in (killed, other):
        assert victim.stdout is not None
        names.append((await asyncio.to_thread(victim.stdout.readline)).strip())
    await asyncio.to_thread(finish, killed)
    with Store.open(project) as store:
        report = await cleanup(store, project)
        assert [e.name for e in report.released] == [names[0]]
        assert [e.name for e in report.skipped_live] == [names[1]]
        found = {row.name: row.state for row in store.reader().leases()}
        assert found == {names[0]: LeaseState.RELEASED, names[1]: LeaseState.ACTIVE}
    assert [t for t in traces(project) if names[0] in t] == []
    out, _ = await asyncio.to_thread(other.communicate, "go on\n", 30)
    assert (out, other.returncode) == ("done\n", 0)
    await clean(project)


@needs_bubblewrap
async def test_the_death_of_the_process_ends_its_sandboxes_by_itself(project: Path) -> None:
    """Even before anybody cleans up, nothing runs any more; only directories are left.

    That takes a namespace of processes; where only Landlock isolates, detached ones wait for cleanup.
    """
    victim = await asyncio.to_thread(start, project, "used")
    await asyncio.to_thread(wait_for_stop, victim)
    assert any(t.startswith("process") for t in traces(project))
    os.kill(victim.pid, signal.SIGKILL)
    await asyncio.to_thread(finish, victim)
    await until(lambda: not any(t.startswith("process") for t in traces(project)))
    await clean(project)


async def test_a_directory_alone_is_found(project: Path) -> None:
    """Its maker was killed between the directory and its content."""
    (project / ".loops" / "sandboxes" / "ltui-half-made").mkdir(parents=True)
    provider = LocalProvider(project)
    assert [found.name for found in await provider.list()] == ["ltui-half-made"]
    await provider.aclose()
    await clean(project)
