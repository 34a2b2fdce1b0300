"""A run of two steps that ends with a checkpoint, and a Loops that is asked whether it still has that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.hosting import loops_access
from engine.hosting.host import RunHost
from engine.hosting.local_server import ServerAddress
from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.rl.cursor import Cursor, identity_of
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, LeaseRow, LeaseState, RunRow, RunState, StepRow
from tests.hosting.stand_ins import AddressOnly, make_project
from tests.loops_admin.keeps_checkpoints import KeepsCheckpoints
from tests.loops_admin.odd_server import OddServer


async def two_steps(project: Project, handle: RunHandle) -> Outcome:
    """Two steps and a checkpoint, or from a checkpoint two more."""
    before = handle.resume_from.step if handle.resume_from is not None else 0
    handle.recorder.run(state=RunState.RUNNING, loops_run_id=f"loops-{before}")
    for step in (before + 1, before + 2):
        handle.recorder.step(StepRow(handle.run_id, step, "done", time.time(), time.time(), step))
    handle.recorder.run(step=before + 2)
    cursor = Cursor(identity_of(project), before + 2, 0, 0, 0.5, 0.5, 0.5)
    name = f"step-{before + 2:06d}"
    handle.recorder.checkpoint(
        CheckpointRow(
            handle.run_id,
            name,
            before + 2,
            CheckpointState.SAVED,
            "stop",
            time.time(),
            loops_run_id=f"loops-{before}",
            trainer_path=f"bt://loops:loops-{before}/weights/{name}",
            cursor=cursor.to_row(),
        )
    )
    return Outcome(RunState.STOPPED, before + 2, loops_run_id=f"loops-{before}")


class OwnServer(AddressOnly):
    """The project's own server, as far as it is asked about checkpoints."""

    url = ""

    def start(self, timeout: float = 1.0) -> ServerAddress:
        return replace(super().start(timeout), url=self.url)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeepsCheckpoints]:
    """What the project's own server has: the checkpoints of the first two sittings."""
    with OddServer() as server:
        kept = server.answer = KeepsCheckpoints(
            "bt://loops:loops-0/weights/step-000002", "bt://loops:loops-2/weights/step-000004"
        )
        monkeypatch.setattr(OwnServer, "url", server.url)
        monkeypatch.setattr(loops_access, "LocalServer", OwnServer)
        yield kept


async def run_two_steps(project: Project, directory: Path) -> RunRow:
    host = RunHost(project, directory, AddressOnly(directory), kind="headless", train=two_steps)
    host.begin()
    return await host.run()


@pytest.fixture
async def ended(tmp_path: Path) -> RunRow:
    """A run of the smallest example, stopped after two of 16 steps."""
    project = make_project(tmp_path)
    try:
        return await run_two_steps(project, tmp_path)
    finally:
        project.close()


def leave_lease(store: Store, run: RunRow, provider: str) -> None:
    row = LeaseRow("ltui-gone", provider, "none", run.run_id, 0, 0, run.host_id, LeaseState.ACTIVE, 1.0)
    names = list(LeaseRow.__dataclass_fields__)
    values = [str(getattr(row, name)) if name == "state" else getattr(row, name) for name in names]
    sql = f"INSERT INTO leases ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    store.submit(lambda connection: connection.execute(sql, values).rowcount).result(120)
