"""Locked files, full disks, newer and damaged files, two processes, dead hosts."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.store import Store, StoreError, schema, writer
from engine.store.processes import process_started, same_process
from engine.store.rows import AttemptState, CommandState, GroupState, RunState
from engine.store.schema import MIGRATIONS, migrate, open_database, store_path
from engine.store.writer import Writer
from tests.store.conftest import make_attempt, make_group, make_host, make_run

RUN = "20261129-143501-k3f9"


def python(code: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == line


# -- opening -----------------------------------------------------------------------------------------------------


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with sqlite3.connect(store_path(tmp_path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer loops-tui .*99"):
        Store.open(tmp_path)


def test_migrations_are_applied_in_order_and_once(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = open_database(path)
    more = (
        *MIGRATIONS,
        ("CREATE TABLE extra (x)", "INSERT INTO extra VALUES (1)"),
        ("INSERT INTO extra VALUES (2)",),
    )
    migrate(connection, path, more)
    migrate(connection, path, more)
    assert [row[0] for row in connection.execute("SELECT x FROM extra")] == [1, 2]
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, path, (*more, ("CREATE TABLE half (x)", "CREATE TABLE half (x)")))
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone()[0] == 0
    connection.close()


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / ".loops").mkdir()
    store_path(tmp_path).write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(StoreError, match="damaged or no loops-tui store"):
        Store.open(tmp_path)


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no directory"):
        Store.open(tmp_path / "missing")
    (tmp_path / ".loops").write_text("a file in the way")
    with pytest.raises(StoreError, match="store:"):
        Store.open(tmp_path)


# -- writing -----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are waited for briefly, so that a test needs no seconds."""
    monkeypatch.setattr(schema, "LOCK_WAIT_SECONDS", 0.02)
    monkeypatch.setattr(writer, "_RETRY_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_lock_delays_rows_and_loses_none(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    other = sqlite3.connect(store_path(tmp_path), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        store.take_commands(RUN)
    recorder.attempt(make_attempt(RUN, 0, 0, turns=1))
    recorder.run(state=RunState.RUNNING)
    with pytest.raises(StoreError, match="not written within"):
        recorder.flush_blocking(timeout=0.1)
    recorder.attempt(make_attempt(RUN, 0, 0, turns=2))
    other.execute("ROLLBACK")
    other.close()
    recorder.flush_blocking()
    reader = store.reader()
    assert reader.attempts(RUN, 0)[0].turns == 2
    assert reader.run(RUN).state is RunState.RUNNING
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_lock_that_stays_is_reported_once_and_at_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "GRACE_SECONDS", 0.1)
    store = Store.open(tmp_path)
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    store._writer._grace = 0.1
    told = threading.Event()
    reports: list[StoreError] = []

    def report(error: StoreError) -> None:
        reports.append(error)
        told.set()

    store.on_error(report)
    other = sqlite3.connect(store_path(tmp_path), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recorder.log("info", "run", "lost")
    assert told.wait(120)
    assert "locked" in str(reports[0])
    with pytest.raises(StoreError, match="locked"):
        recorder.log("info", "run", "refused")
    with pytest.raises(StoreError, match="locked"):
        recorder.flush_blocking(timeout=60)
    with pytest.raises(StoreError, match="1 rows are lost"):
        store.close()
    other.close()
    assert len(reports) == 1


def test_a_full_disk_is_said_in_one_sentence(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.create_run(make_run(tmp_path))
    pages = store._writer.call(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    store._writer.call(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    with pytest.raises(StoreError, match=r"the disk that holds .* is full"):
        store.add_check("c", ok=True, findings=[], lines=["x" * 100_000])
    # The writer lives on and writes what fits.
    store.request(RUN, "stop")
    store.close()


def test_a_writer_that_cannot_keep_up_says_so(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN)
    store._writer._max_pending = 3
    store._writer._max_delay = 1000.0
    entered, leave = threading.Event(), threading.Event()

    def block(_: sqlite3.Connection) -> None:
        entered.set()
        assert leave.wait(120)

    store._writer.submit(block)
    assert entered.wait(120)
    for _ in range(3):
        recorder.log("info", "run", "fits")
    with pytest.raises(StoreError, match="does not keep up"):
        recorder.log("info", "run", "too much")
    leave.set()
    store.close()


def test_after_close_everything_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.create_run(make_run(tmp_path))
    recorder, reader = store.recorder(RUN), store.reader()
    recorder.log("info", "run", "last words")
    store.close()
    for act in (
        lambda: recorder.log("info", "run", "x"),
        recorder.flush_blocking,
        reader.runs,
        store.reconcile,
    ):
        with pytest.raises(StoreError, match="closed"):
            act()
    with Store.open(tmp_path) as again:
        assert len(again.reader().log(RUN)) == 1


_WRITE_MANY = """
import sys
from pathlib import Path
from engine.store import Store
from engine.store.rows import AttemptRow, AttemptState
project, run_id, group = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Store.open(project) as store:
    recorder = store.recorder(run_id, files=False)
    for attempt in range(300):
        recorder.attempt(AttemptRow(run_id, group, attempt, AttemptState.DONE))
        if attempt % 30 == 0:
            recorder.flush_blocking()
            store.request(run_id, "save")
"""


def test_two_processes_write_at_once(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    writers = [python(_WRITE_MANY, str(tmp_path), RUN, str(group)) for group in (1, 2)]
    assert [process.wait(60) for process in writers] == [0, 0]
    for process in writers:
        process.communicate()
    reader = store.reader()
    assert [len(reader.attempts(RUN, group)) for group in (1, 2)] == [300, 300]
    assert len(store.take_commands(RUN)) == 20


# -- hosts -------------------------------------------------------------------------------------------------------

_HOST = """
import os, sys, time
from pathlib import Path
from engine.store import Store
from engine.store.processes import hostname, process_started
from engine.store.rows import HostRow, RunState
store = Store.open(Path(sys.argv[1]))
now = time.time()
pid = os.getpid()
store.claim(sys.argv[2], HostRow("dying", pid, process_started(pid), hostname(), "headless", now, now), RunState.RUNNING)
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_killed_host_makes_its_run_interrupted(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    process = python(_HOST, str(tmp_path), RUN)
    expect(process, "claimed")
    assert store.reconcile() == []
    with pytest.raises(StoreError, match=f"hosted by process {process.pid}"):
        store.claim(RUN, make_host())
    recorder = store.recorder(RUN)
    recorder.group(make_group(RUN, 0))
    recorder.attempt(make_attempt(RUN, 0, 0, AttemptState.SAMPLING))
    recorder.attempt(make_attempt(RUN, 0, 1, AttemptState.DONE))
    recorder.flush_blocking()
    command = store.request(RUN, "stop")

    process.kill()
    process.communicate()
    assert store.reconcile() == [RUN]
    assert store.reconcile() == []
    reader = store.reader()
    run = reader.run(RUN)
    assert run.state is RunState.INTERRUPTED
    assert run.error is not None
    assert f"process {process.pid}" in run.error
    assert run.ended_at is not None
    written = json.loads((Path(run.run_dir) / "run.json").read_text())
    assert (written["state"], written["error"]) == ("interrupted", run.error)
    assert reader.groups(RUN)[0].state is GroupState.LOST
    assert [a.state for a in reader.attempts(RUN, 0)] == [AttemptState.CANCELLED, AttemptState.DONE]
    answered = reader.command(command.command_id)
    assert answered is not None
    assert answered.state is CommandState.REFUSED
    with pytest.raises(StoreError, match="has ended already"):
        store.request(RUN, "stop")
    assert store.claim(RUN, make_host()).state is RunState.STARTING


@pytest.mark.parametrize(
    "changes",
    [
        {"heartbeat_at": 1.0, "hostname": "elsewhere"},  # silent, on another machine
        {"pid_started": 1.0},  # a reused pid, or this machine was started anew
        {"pid": 2**22 + 1},  # gone
    ],
)
def test_dead_hosts(tmp_path: Path, store: Store, changes: dict[str, Any]) -> None:
    store.create_run(make_run(tmp_path))
    store.claim(RUN, make_host(**changes))
    with Store.open(tmp_path) as other:
        with pytest.raises(StoreError, match="host is gone"):
            other.request(RUN, "stop")
        assert other.reconcile() == [RUN]


def test_a_host_elsewhere_that_beats_is_alive(tmp_path: Path, store: Store) -> None:
    store.create_run(make_run(tmp_path))
    store.claim(RUN, make_host(hostname="elsewhere", pid=2**22 + 1))
    with Store.open(tmp_path) as other:
        assert other.reconcile() == []


def test_a_dead_run_whose_directory_is_gone(store: Store, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    store.create_run(run)
    store.claim(RUN, make_host(pid=2**22 + 1))
    shutil.rmtree(run.run_dir)
    assert store.reconcile() == [RUN]
    assert not Path(run.run_dir).exists()


def test_a_run_nobody_takes_up(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    store.create_run(make_run(tmp_path, "old", created_at=1.0))
    assert store.reconcile() == ["old"]


def test_a_sleeper_gets_its_state_back_and_a_successor_keeps_its_own(store: Store, tmp_path: Path) -> None:
    """The sleeper is a process that lives, and has not beaten for long."""
    store.create_run(make_run(tmp_path))
    sleeper = python("import sys; print('up', flush=True); sys.stdin.read()")
    expect(sleeper, "up")
    store.claim(
        RUN,
        make_host(pid=sleeper.pid, pid_started=process_started(sleeper.pid), heartbeat_at=1.0),
        RunState.RUNNING,
    )
    recorder = store.recorder(RUN, host_id="host-1")
    assert store.reconcile() == [RUN]
    assert store.reassert(RUN, "host-1", RunState.RUNNING)
    assert store.reader().run(RUN).state is RunState.RUNNING
    assert store.reconcile() == [RUN]
    store.claim(RUN, make_host("host-2"), RunState.STARTING)
    assert not store.reassert(RUN, "host-1", RunState.RUNNING)
    recorder.run(state=RunState.DONE)
    recorder.flush_blocking()
    store.end_run(RUN, "host-1", RunState.FAILED, "late")
    assert store.reader().run(RUN).state is RunState.STARTING
    sleeper.communicate()


def test_a_process_never_takes_itself_for_dead(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    store.claim(RUN, make_host(heartbeat_at=1.0))
    assert store.reconcile() == []


def test_parts_of_a_process_share_one_writer(store: Store, tmp_path: Path) -> None:
    with Store.open(tmp_path) as other:
        assert other._writer is store._writer
    store.create_run(make_run(tmp_path))
    assert store.reader().run(RUN).run_id == RUN


def test_heartbeats_reach_the_file(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    host = make_host(heartbeat_at=1.0)
    store.claim(RUN, host)
    store.heartbeat(host.host_id)
    store.flush()
    row = store.reader().host(host.host_id)
    assert row is not None
    assert row.heartbeat_at > 1.0
    assert host.host_id in store.reader().live_hosts(row.heartbeat_at)


def test_processes_are_told_apart() -> None:
    process = python("import sys; print('up', flush=True); sys.stdin.read()")
    expect(process, "up")
    started = process_started(process.pid)
    assert started is not None
    assert same_process(process.pid, started)
    assert not same_process(process.pid, started - 60)
    process.communicate()
    assert process_started(process.pid) is None
    assert not same_process(process.pid, started)


def test_the_writer_refuses_a_second_life(tmp_path: Path) -> None:
    one = Writer(tmp_path / "db")
    one.close()
    with pytest.raises(StoreError, match="closed"):
        one.flush()
