"""The hosts' face of cleanup: who holds a sandbox, and letting go of what nobody does."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.cleanup import release_left_behind, run_of_directory
from engine.hosting.runs_here import RunsHere
from engine.sandboxes import ProviderError, SandboxSettings
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.naming import project_label
from engine.store import Store
from engine.store.errors import UnknownRun
from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseRow, LeaseState, RunState
from tests.sandboxes.traces import traces
from tests.store.conftest import make_host, make_run

RUN = "20261129-143501-k3f9"


def put(store: Store, *rows: LeaseRow) -> None:
    async def add() -> None:
        journal = LeaseJournal(store)
        for row in rows:
            await journal.add(row)

    asyncio.run(add())


def lease(name: str, **changes: Any) -> LeaseRow:
    values: dict[str, Any] = {
        "provider": "local", "isolation": "bubblewrap", "run_id": RUN, "group_id": 0, "attempt": 0, "host_id": "host-1",
        "state": LeaseState.ACTIVE, "created_at": time.time(), **changes,
    }  # fmt: skip
    return LeaseRow(name, **values)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A project with a run that this process hosts."""
    with Store.open(tmp_path) as opened:
        opened.create_run(make_run(tmp_path, RUN))
        opened.claim(RUN, make_host(), RunState.RUNNING)
        yield opened


def left(store: Store) -> set[str]:
    reader = store.reader()
    return {view.lease.name for view in reader.lease_views(reader.leases(), time.time()) if view.left_behind}


def test_what_a_host_holds(store: Store) -> None:
    put(
        store,
        lease("ltui-active"),
        lease("ltui-lost", state=LeaseState.LOST),  # it has been given up
        lease("ltui-other", host_id="host-0"),
        lease("ltui-gone", state=LeaseState.RELEASED, host_id="host-0"),
    )
    assert left(store) == {"ltui-lost", "ltui-other"}
    (counts,) = store.reader().lease_counts().values()
    assert (counts.live, counts.lost) == (2, 1)


@pytest.mark.parametrize("state", [RunState.DONE, RunState.STOPPED, RunState.ABORTED, RunState.FAILED])
def test_a_run_that_ended_holds_nothing_although_its_process_lives(store: Store, state: RunState) -> None:
    """As an app's process does, long after the runs that it hosted."""
    put(store, lease("ltui-a"))
    assert left(store) == set()
    store.end_run(RUN, "host-1", state, None)
    assert left(store) == {"ltui-a"}


def test_a_host_that_only_slept_still_holds(store: Store) -> None:
    put(store, lease("ltui-a"))
    store.submit(lambda c: c.execute("UPDATE runs SET state = 'interrupted'")).result(120)
    assert left(store) == set()


def test_a_host_whose_run_was_taken_over_holds_nothing(store: Store) -> None:
    put(store, lease("ltui-a"))
    store.submit(lambda c: c.execute("UPDATE runs SET host_id = 'host-9'")).result(120)
    assert left(store) == {"ltui-a"}


def test_the_engine_thread_releases_and_spares(store: Store, tmp_path: Path) -> None:
    put(store, lease("ltui-held"), lease("ltui-left", host_id="host-0"))
    here = RunsHere(tmp_path)
    try:
        report = here.clean_up(["ltui-held", "ltui-left"])
        assert [entry.name for entry in report.already_gone] == ["ltui-left"]
        (spared,) = report.skipped_live
        assert spared.detail == f"held by process {os.getpid()} on {make_host().hostname} (headless)"
        assert [entry.name for entry in here.clean_up().skipped_live] == ["ltui-held"]
        assert [entry.name for entry in here.clean_up(["ltui-held"], force=True).already_gone] == [
            "ltui-held"
        ]
    finally:
        here.close()
    assert {row.state for row in store.reader().leases()} == {LeaseState.RELEASED}


async def test_a_sandbox_in_use_in_this_process_goes_by_its_name(store: Store, tmp_path: Path) -> None:
    """The app's cleanup against a run that the same app hosts: the attempt is told, and its own release is quiet."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap here")
    settings = SandboxSettings(disk_mb=8)
    provider = LocalProvider(tmp_path, settings)
    label = project_label(tmp_path)
    keeper = LeaseKeeper(store, provider, settings, project=label, run_id=RUN, host_id="host-1")
    leased = await keeper.acquire(group_id=0, attempt=0)
    working = asyncio.create_task(leased.sandbox.exec("sleep 100", timeout=100))
    assert [entry.name for entry in (await release_left_behind(tmp_path)).skipped_live] == [leased.name]
    report = await release_left_behind(tmp_path, names=[leased.name], force=True)
    assert [entry.name for entry in report.released] == [leased.name]
    with pytest.raises(ProviderError):
        await working
    await keeper.release(leased)
    assert await keeper.release_all() == 0
    await provider.aclose()
    assert {row.state for row in store.reader().leases()} == {LeaseState.RELEASED}
    assert await asyncio.to_thread(traces, tmp_path) == []


async def test_a_provider_that_cannot_be_used_here(store: Store, tmp_path: Path) -> None:
    await LeaseJournal(store).add(lease("ltui-far", provider="far-away", host_id="host-0"))
    report = await release_left_behind(tmp_path)
    (failed,) = report.failed
    assert failed.name == "ltui-far"
    assert "far-away" in failed.detail
    assert not report.ok


def test_a_project_without_a_store_gets_none(tmp_path: Path) -> None:
    report = asyncio.run(release_left_behind(tmp_path))
    assert report.ok
    assert list(tmp_path.iterdir()) == []


def test_a_run_by_its_directory(store: Store, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "demo" / RUN
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "runs")
    for place in (
        run_dir,
        run_dir / "state" / "deeper",
        link / "demo" / RUN / "state",
        f"runs/demo/{RUN}/state",
    ):
        assert run_of_directory(store, place, tmp_path).run_id == RUN
    for place in (run_dir.parent, tmp_path, "/", "state"):
        with pytest.raises(UnknownRun):
            run_of_directory(store, place, tmp_path)
