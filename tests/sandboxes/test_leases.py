"""Leases through failures and cancellations, and their cleanup."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from engine.sandboxes import (
    PermanentError,
    SandboxGone,
    SandboxSettings,
    TransientError,
)
from engine.sandboxes.cleanup import cleanup
from engine.sandboxes.for_run import AttemptSandboxes
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.naming import project_label
from engine.store import Store, StoreError
from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseRow, LeaseState
from tests.sandboxes.fake_provider import FakeProvider
from tests.sandboxes.traces import until
from tests.sandboxes.victim import become_host


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Each test's own."""
    return tmp_path


@pytest.fixture
def store(project: Path) -> Iterator[Store]:
    with Store.open(project) as opened:
        become_host(opened, "host-1")
        yield opened


@pytest.fixture
async def fake() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
async def keeper(store: Store, fake: FakeProvider, project: Path) -> AsyncIterator[LeaseKeeper]:
    label = project_label(project)
    opened = LeaseKeeper(
        store,
        fake,
        SandboxSettings(max_concurrent_creates=4),
        project=label,
        run_id="run-1",
        host_id="host-1",
    )
    yield opened
    await opened.aclose()


def states(store: Store) -> list[str]:
    return [str(row.state) for row in store.reader().leases()]


async def settled(store: Store, keeper: LeaseKeeper) -> list[str]:
    await keeper.release_all()
    return states(store)


async def test_the_story_of_a_lease(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper, project: Path
) -> None:
    leased = await keeper.acquire(group_id=12, attempt=3, number=2, ttl_seconds=60)
    (row,) = store.reader().leases("run-1", [LeaseState.ACTIVE])
    assert (row.name, row.provider, row.isolation, row.group_id, row.attempt) == (
        leased.name,
        "fake",
        "remote",
        12,
        3,
    )
    assert (row.host_id, row.ttl_seconds, row.memory_mb) == ("host-1", 60, 2048)
    assert row.active_at is not None
    assert row.created_at <= row.active_at
    assert fake.boxes[leased.name] == {
        "ltui-project": project_label(project),
        "ltui-run": "run-1",
        "ltui-host": "host-1",
        "ltui-attempt": "12.3.2",
    }
    assert store.reader().live_lease_counts() == {"run-1": 1}
    await asyncio.gather(keeper.release(leased), keeper.release(leased))
    await keeper.release(leased)
    row = store.reader().lease(leased.name)
    assert row is not None
    assert row.state is LeaseState.RELEASED
    assert row.released_at is not None
    assert store.reader().live_lease_counts() == {}
    assert fake.boxes == {}


async def test_the_intent_is_in_the_file_before_the_provider_is_asked(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper
) -> None:
    fake.gate.clear()
    task = asyncio.create_task(keeper.acquire())
    await until(lambda: fake.creating > 0)
    script = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT name, state FROM leases').fetchall())"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(store.path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"[('{next(iter(fake.boxes))}', 'intended')]"
    fake.gate.set()
    await task


async def test_without_a_journal_nothing_is_created(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper
) -> None:
    def full(*_: object) -> None:
        raise StoreError("store: the disk is full")

    keeper._journal.add = full  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="full"):
        await keeper.acquire()
    assert (fake.boxes, fake.releases) == ({}, [])


async def test_each_sandbox_of_an_attempt_has_its_own_number(fake: FakeProvider, keeper: LeaseKeeper) -> None:
    source = AttemptSandboxes(keeper, 12, 3, lambda level, text: None)
    for number in (1, 2):  # a try, and its retry
        leased = await source.acquire()
        assert f"-g12a3t{number}-" in leased.name
        assert fake.boxes[leased.name]["ltui-attempt"] == f"12.3.{number}"
        await source.release(leased)


async def test_a_passing_failure_is_tried_again_under_a_new_name(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper
) -> None:
    fake.create_errors = [TransientError("busy", retry_after=0.0), TransientError("busy", retry_after=0.0)]
    leased = await keeper.acquire()
    await asyncio.gather(*keeper._releases.values())
    assert list(fake.boxes) == [leased.name]
    assert sorted(states(store)) == ["active", "released", "released"]
    fake.create_errors = [TransientError("busy", retry_after=0.0)] * 3
    with pytest.raises(TransientError):
        await keeper.acquire()
    fake.create_errors = [PermanentError("no such image")]
    with pytest.raises(PermanentError, match="image"):
        await keeper.acquire()
    assert set(await settled(store, keeper)) == {"released"}
    assert fake.boxes == {}


@pytest.mark.parametrize("turns", range(14))
async def test_a_cancelled_acquire_ends_released(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper, turns: int
) -> None:
    """Cancelled at every turn of the loop that it takes."""
    task = asyncio.create_task(keeper.acquire())
    for _ in range(turns):
        await asyncio.sleep(0)
        if keeper._journal._waiting or (keeper._journal._writing and not keeper._journal._writing.done()):
            await asyncio.wait({keeper._journal._writing} if keeper._journal._writing else set())
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert set(await settled(store, keeper)) <= {"released"}
    assert fake.boxes == {}


async def test_release_is_shielded_from_cancellation(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper
) -> None:
    leased = await keeper.acquire()
    task = asyncio.create_task(keeper.release(leased))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await settled(store, keeper) == ["released"]
    assert fake.releases == [leased.name]


async def test_release_is_tried_again_and_then_lost(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper, project: Path
) -> None:
    leased = await keeper.acquire()
    fake.release_errors = [TransientError("502", retry_after=0.0)] * 2
    await keeper.release(leased)
    row = store.reader().lease(leased.name)
    assert row is not None
    assert (row.state, row.tries, row.last_error) == (LeaseState.RELEASED, 3, "502")
    other = await keeper.acquire()
    fake.release_errors = [TransientError("503", retry_after=0.0)] * 6
    with pytest.raises(TransientError, match="503"):
        await keeper.release(other)
    row = store.reader().lease(other.name)
    assert row is not None
    assert (row.state, row.tries, row.last_error) == (LeaseState.LOST, 6, "503")
    assert store.reader().live_lease_counts() == {"run-1": 1}
    report = await cleanup(store, project, providers={"fake": fake}, force_hosts=["host-1"])
    assert ([e.name for e in report.released], report.failed) == ([other.name], [])
    assert set(states(store)) == {"released"}


async def test_what_cannot_get_better_is_lost_at_once(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper
) -> None:
    await keeper.acquire()
    fake.release_errors = [PermanentError("forbidden")]
    assert await keeper.release_all() == 1
    assert states(store) == ["lost"]
    with pytest.raises(PermanentError, match="ending"):
        await keeper.acquire()


async def test_creations_are_bounded(fake: FakeProvider, keeper: LeaseKeeper) -> None:
    fake.gate.clear()
    tasks = [asyncio.create_task(keeper.acquire(group_id=0, attempt=n)) for n in range(12)]
    await until(lambda: fake.creating == 4)
    fake.gate.set()
    await asyncio.gather(*tasks)
    assert fake.most_creating == 4
    assert len(keeper.held) == 12


async def test_a_lease_that_somebody_released_meanwhile_is_not_used(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper, project: Path
) -> None:
    fake.gate.clear()
    task = asyncio.create_task(keeper.acquire())
    await until(lambda: fake.creating > 0)
    report = await cleanup(store, project, providers={"fake": fake}, names=list(fake.boxes))
    assert len(report.released) == 1
    fake.gate.set()
    with pytest.raises(SandboxGone, match="somebody else"):
        await task
    assert await settled(store, keeper) == ["released"]


async def test_a_dry_run_touches_nothing(
    store: Store, fake: FakeProvider, keeper: LeaseKeeper, project: Path
) -> None:
    leased = await keeper.acquire()
    fake.boxes["stray"] = {"ltui-project": project_label(project), "ltui-run": "run-0"}
    fake.boxes["foreign"] = {"ltui-project": "another"}
    spared = await cleanup(store, project, providers={"fake": fake}, dry_run=True)
    assert [e.name for e in spared.skipped_live] == [leased.name]
    assert [e.name for e in spared.released] == [e.name for e in spared.unknown_found] == ["stray"]
    forced = await cleanup(store, project, dry_run=True, providers={"fake": fake}, force_hosts=["host-1"])
    assert {e.name for e in forced.released} == {leased.name, "stray"}
    one_run = await cleanup(
        store, project, "run-1", dry_run=True, providers={"fake": fake}, force_hosts=["host-1"]
    )
    assert [e.name for e in one_run.released] == [leased.name]
    assert (states(store), fake.releases) == (["active"], [])


async def test_cleanup_reports_what_fails(store: Store, fake: FakeProvider, project: Path) -> None:
    journal = LeaseJournal(store)
    for name, provider in (("ltui-a", "fake"), ("ltui-b", "elsewhere")):
        await journal.add(LeaseRow(name, provider, "", "run-1", 0, 0, "dead", LeaseState.ACTIVE, 1.0))
    fake.release_errors = [PermanentError("forbidden")]
    report = await cleanup(store, project, providers={"fake": fake})
    assert {(e.name, e.detail) for e in report.failed} == {
        ("ltui-a", "forbidden"),
        ("ltui-b", "the provider elsewhere is not set up here"),
    }
    assert not report.ok
    again = await cleanup(store, project, providers={"fake": fake})
    assert [e.name for e in again.already_gone] == ["ltui-a"]
    with pytest.raises(StoreError, match="in the journal already"):
        await journal.add(LeaseRow("ltui-a", "fake", "", None, None, None, None, LeaseState.INTENDED, 1.0))
