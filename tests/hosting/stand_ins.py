"""Stand-ins for what a run talks to: a server that is only an address, and recipes that do as they are told."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from pathlib import Path

from engine.config.bundled import examples_dir
from engine.hosting.errors import HostingError
from engine.hosting.local_server import LocalServer, ServerAddress
from engine.project import Project, load
from engine.recipes.contract import Outcome, RunFailed, RunHandle
from engine.store.processes import process_started
from engine.store.rows import GroupRow, GroupState, RunState, StepRow


def make_project(directory: Path) -> Project:
    """The smallest example, copied into a project directory."""
    examples = examples_dir()
    assert examples is not None
    shutil.copytree(examples / "in_process_direct", directory / "direct", dirs_exist_ok=True)
    return load("direct/train.toml", working_dir=directory)


class AddressOnly(LocalServer):
    """Says that it serves. ``dies`` ends it."""

    def __init__(self, project_dir: Path, refuse: str | None = None) -> None:
        super().__init__(project_dir)
        self.dies = asyncio.Event()
        self.refuse = refuse
        self.closed = False

    def start(self, timeout: float = 1.0) -> ServerAddress:
        if self.refuse is not None:
            raise HostingError(self.refuse)
        pid = os.getpid()
        return ServerAddress("http://127.0.0.1:9", "key-of-the-server", "m", pid, process_started(pid) or 0.0)

    async def until_dead(self) -> str:
        await self.dies.wait()
        return "the local Loops server ended (killed by signal 9)"

    @property
    def dead(self) -> bool:
        return self.dies.is_set()

    def epitaph(self) -> str:
        return "the local Loops server ended (killed by signal 9)"

    def close(self) -> None:
        self.closed = True


async def obedient(project: Project, handle: RunHandle) -> Outcome:
    """Runs until it is told to stop, then finishes one step; the first save succeeds, the others do not."""
    handle.recorder.run(state=RunState.RUNNING)
    handle.recorder.group(GroupRow(handle.run_id, 0, GroupState.RUNNING, "t", 0))
    seen = handle.control.wishes
    while not handle.control.stopping:
        seen = await handle.control.wait_changed(seen)
    if handle.control.aborted:
        return Outcome(RunState.ABORTED, 0)
    for number, save in enumerate(handle.control.take_saves()):
        save.answer(number == 0, "it could not be saved" if number else "saved as step-000001")
    handle.recorder.step(StepRow(handle.run_id, 1, "done", time.time(), time.time(), 1, {"reward/mean": 0.5}))
    handle.recorder.group(GroupRow(handle.run_id, 0, GroupState.TRAINED, "t", 0))
    handle.recorder.run(step=1, reward_first=0.5, reward_last=0.5)
    return Outcome(RunState.STOPPED, 1, 0.5, 0.5, "loops-1")


async def stubborn(project: Project, handle: RunHandle) -> Outcome:
    """Never finishes its step; only an abort ends it."""
    handle.recorder.run(state=RunState.RUNNING)
    await handle.control.wait_aborted()
    return Outcome(RunState.ABORTED, 0)


async def blocking(project: Project, handle: RunHandle) -> Outcome:
    """Holds the loop as an episode does that does not know better; says on standard output that it begins."""
    print("blocking", flush=True)
    time.sleep(600)  # noqa: ASYNC251 - the point
    return Outcome(RunState.DONE, 1)


async def computing(project: Project, handle: RunHandle) -> Outcome:
    """Holds the main thread in C, where no handler in Python is called."""
    print("computing", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000_000)  # some minutes
    return Outcome(RunState.DONE, 1)


async def quick(project: Project, handle: RunHandle) -> Outcome:
    handle.recorder.run(state=RunState.RUNNING, step=3)
    return Outcome(RunState.DONE, 3)


async def failing(project: Project, handle: RunHandle) -> Outcome:
    raise RunFailed("the trainer refused the batch")


async def broken(project: Project, handle: RunHandle) -> Outcome:
    key = handle.endpoint.api_key
    raise ZeroDivisionError(f"with Authorization: Bearer {key}")


RECIPES = {
    recipe.__name__: recipe for recipe in (obedient, stubborn, blocking, computing, quick, failing, broken)
}
