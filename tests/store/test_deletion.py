"""Deleting a run's record: all of its rows go, nothing else does, and never those of a run that still lives."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest

from engine.store import Store, StoreError
from engine.store.deletion import PIECE
from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseRow, LeaseState, RunState
from tests.store.conftest import make_host, make_run, make_transcript

RUN = "20261129-143501-k3f9"
TABLES = ("runs", "steps", "groups", "attempts", "transcripts", "log", "leases", "commands", "checkpoints")


def rows_of(store: Store, run_id: str) -> dict[str, int]:
    with sqlite3.connect(store.path) as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table} WHERE run_id = ?", (run_id,)).fetchone()[
                0
            ]
            for table in TABLES
        }
        counts["transcript_text"] = connection.execute("SELECT count(*) FROM transcript_text").fetchone()[0]
    connection.close()
    return counts


def ended(store: Store, project: Path, run_id: str = RUN, transcripts: int = 3) -> None:
    """A run that has ended, with some of everything."""
    store.create_run(make_run(project, run_id))
    host = make_host(f"host-of-{run_id}")
    store.claim(run_id, host, RunState.RUNNING)
    store.request(run_id, "pause")
    recorder = store.recorder(run_id)
    recorder.log("info", "run", "a line")
    for number in range(transcripts):
        recorder.transcript(make_transcript(run_id, number, 0, "a task", "an answer"))
    store.flush()
    store.end_run(run_id, host.host_id, RunState.DONE, None)


def lease(store: Store, state: LeaseState) -> None:
    row = LeaseRow("ltui-1", "local", "bubblewrap", RUN, 0, 0, f"host-of-{RUN}", state, time.time())

    async def add() -> None:
        await LeaseJournal(store).add(row)

    asyncio.run(add())


def test_all_rows_of_a_run_go_and_those_of_another_stay(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path, transcripts=2 * PIECE + 1)
    ended(store, tmp_path, "other")
    lease(store, LeaseState.RELEASED)
    before = rows_of(store, "other")
    store.delete_run(RUN)
    after = rows_of(store, RUN)
    assert all(after[table] == 0 for table in TABLES)
    assert rows_of(store, "other") == {**before, "transcript_text": 3}
    assert [hit.run_id for hit in store.reader().search(None, "answer")] == ["other"] * 3
    assert (tmp_path / "runs" / "demo" / RUN / "run.json").exists()


def test_a_run_that_goes_on_stays(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    store.claim(RUN, make_host(), RunState.RUNNING)
    with pytest.raises(StoreError, match="is running: stop it first"):
        store.delete_run(RUN)
    assert store.reader().get_run(RUN) is not None


@pytest.mark.parametrize("state", [state for state in LeaseState if state is not LeaseState.RELEASED])
def test_a_run_that_may_have_sandboxes_stays(store: Store, tmp_path: Path, state: LeaseState) -> None:
    ended(store, tmp_path)
    lease(store, state)
    before = rows_of(store, RUN)
    with pytest.raises(StoreError, match="may still have a sandbox: clean up first"):
        store.delete_run(RUN)
    assert rows_of(store, RUN) == before


def test_a_run_that_bills_stays_until_it_is_inactive(store: Store, tmp_path: Path) -> None:
    ended(store, tmp_path)
    recorder = store.recorder(RUN, files=False)
    recorder.run(scope="dedicated", loops_run_id="run-1", loops_state="ACTIVE")
    store.flush()
    with pytest.raises(StoreError, match="deactivate it first"):
        store.delete_run(RUN)
    recorder.run(loops_state="INACTIVE", loops_until=time.time())
    store.flush()
    store.delete_run(RUN)
    assert store.reader().get_run(RUN) is None


def test_an_interrupted_run_whose_host_is_alive_after_all_stays(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    host = make_host()
    store.claim(RUN, host, RunState.RUNNING)
    store.end_run(RUN, host.host_id, RunState.INTERRUPTED, "it looked dead")
    with pytest.raises(StoreError, match="has a host after all"):
        store.delete_run(RUN)


def test_an_unknown_run(store: Store) -> None:
    with pytest.raises(StoreError, match="there is no run nowhere"):
        store.delete_run("nowhere")
