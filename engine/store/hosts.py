"""Who hosts which run: claims, heartbeats, and the finding of hosts that died.

Every function here runs inside one write transaction, so two processes cannot both win.
"""

from __future__ import annotations

import os
import sqlite3
import time

from engine.store.codec import decode_row, encode_row, upsert_sql
from engine.store.errors import RunTaken, StoreError
from engine.store.processes import hostname, same_process
from engine.store.redact import Redactor
from engine.store.rows import (
    FINAL_STATES,
    AttemptState,
    CommandState,
    GroupState,
    HostRow,
    RunRow,
    RunState,
)

STALE_SECONDS = 15.0
"""A host that has not been heard of for so long is taken for dead."""
UNCLAIMED_SECONDS = 60.0
"""A run that no host has claimed for so long was abandoned before it began."""

LIVE_ATTEMPTS = tuple(
    str(s)
    for s in (
        AttemptState.QUEUED,
        AttemptState.PROVISIONING,
        AttemptState.SETUP,
        AttemptState.SAMPLING,
        AttemptState.ACTING,
        AttemptState.GRADING,
    )
)
_FINAL = tuple(str(s) for s in sorted(FINAL_STATES))
_OPEN_COMMANDS = (str(CommandState.QUEUED), str(CommandState.ACCEPTED))


def marks(values: tuple[str, ...]) -> str:
    """``?, ?, ?`` for so many values."""
    return ", ".join("?" * len(values))


def is_alive(host: HostRow, now: float) -> bool:
    """Whether a host may still be working: heard of lately and, on this machine, its process exists."""
    here = host.hostname == hostname()
    if here and host.pid == os.getpid():
        # This very process: it lives, even where it slept with the laptop and has not said so since.
        return same_process(host.pid, host.pid_started)
    if now - host.heartbeat_at > STALE_SECONDS:
        return False
    return not here or same_process(host.pid, host.pid_started)


def read_host(connection: sqlite3.Connection, host_id: str | None) -> HostRow | None:
    if host_id is None:
        return None
    row = connection.execute("SELECT * FROM hosts WHERE host_id = ?", (host_id,)).fetchone()
    return None if row is None else decode_row(HostRow, row)


def read_run(connection: sqlite3.Connection, run_id: str) -> RunRow:
    """Raises StoreError where there is no such run."""
    row = connection.execute("SELECT * FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise StoreError(f"there is no run {run_id} in this project's store")
    return decode_row(RunRow, row)


def live_host(connection: sqlite3.Connection, run: RunRow, now: float) -> HostRow | None:
    """The host that works on a run right now, or None."""
    host = None if run.state.final else read_host(connection, run.host_id)
    return host if host is not None and is_alive(host, now) else None


def who(host: HostRow | None) -> str:
    """A host in words."""
    return "another process" if host is None else f"process {host.pid} on {host.hostname} ({host.kind})"


def going_on(run: RunRow, host: HostRow | None) -> str:
    """Why a run that has not ended cannot be resumed, in one sentence that says who has it."""
    return f"run {run.run_id} is {run.state}, in {who(host)}; only a run that has ended can be resumed"


def claim_run(connection: sqlite3.Connection, run_id: str, host: HostRow, state: RunState) -> RunRow:
    """Make ``host`` the run's host and give the run this state. Raises RunTaken where a live host has it."""
    now = time.time()
    run = read_run(connection, run_id)
    other = live_host(connection, run, now)
    if other is not None and other.host_id != host.host_id:
        raise RunTaken(f"run {run_id} is hosted by {who(other)} right now; stop it there first")
    connection.execute(upsert_sql(HostRow), encode_row(host, Redactor()))
    connection.execute(
        "UPDATE runs SET host_id = ?, state = ?, started_at = coalesce(started_at, ?), "
        "stopped_seconds = stopped_seconds + max(0, ? - coalesce(ended_at, ?)), ended_at = NULL, error = NULL "
        "WHERE run_id = ?",
        (host.host_id, str(state), now, now, now, run_id),
    )
    return read_run(connection, run_id)


def reconcile(connection: sqlite3.Connection) -> list[str]:
    """Mark the runs whose host is gone INTERRUPTED and return their ids."""
    now = time.time()
    found: list[str] = []
    rows = connection.execute(f"SELECT * FROM runs WHERE state NOT IN ({marks(_FINAL)})", _FINAL).fetchall()
    for row in rows:
        run = decode_row(RunRow, row)
        if run.host_id is None:
            if now - run.created_at <= UNCLAIMED_SECONDS:
                continue
            interrupt(connection, run.run_id, "no host took this run up", run.created_at)
        else:
            host = read_host(connection, run.host_id)
            if host is not None and is_alive(host, now):
                continue
            interrupt(connection, run.run_id, _last_words(host), None if host is None else host.heartbeat_at)
        found.append(run.run_id)
    return found


def _last_words(host: HostRow | None) -> str:
    if host is None:
        return "its host is not known"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(host.heartbeat_at))
    return f"its host (process {host.pid} on {host.hostname}, {host.kind}) ended without a word; last heard of {when}"


def interrupt(connection: sqlite3.Connection, run_id: str, why: str, ended_at: float | None) -> None:
    """Give a run whose host is gone a true state, and everything that was in flight in it."""
    ended = time.time() if ended_at is None else ended_at
    connection.execute(
        "UPDATE runs SET state = ?, error = ?, ended_at = ?, phase = '' WHERE run_id = ?",
        (str(RunState.INTERRUPTED), why, ended, run_id),
    )
    settle_in_flight(connection, run_id, "interrupted", ended)
    refuse_commands(connection, run_id, f"the run was interrupted: {why}")


def settle_in_flight(connection: sqlite3.Connection, run_id: str, reason: str, ended: float) -> None:
    """Attempts that were running are cancelled, groups that were not trained are lost.

    Evaluations have an end of their own: another process may be making one.
    """
    connection.execute(
        f"UPDATE attempts SET state = ?, ended_at = coalesce(ended_at, ?) "
        f"WHERE run_id = ? AND group_id >= 0 AND state IN ({marks(LIVE_ATTEMPTS)})",
        (str(AttemptState.CANCELLED), ended, run_id, *LIVE_ATTEMPTS),
    )
    connection.execute(
        "UPDATE groups SET state = ?, reason = ?, ended_at = coalesce(ended_at, ?) "
        "WHERE run_id = ? AND group_id >= 0 AND state IN (?, ?)",
        (
            str(GroupState.LOST),
            reason,
            ended,
            run_id,
            str(GroupState.RUNNING),
            str(GroupState.READY),
        ),
    )


def refuse_commands(connection: sqlite3.Connection, run_id: str, why: str) -> None:
    """Answer the commands that nobody will carry out any more."""
    connection.execute(
        f"UPDATE commands SET state = ?, answer = ?, answered_at = ? "
        f"WHERE run_id = ? AND state IN ({marks(_OPEN_COMMANDS)})",
        (str(CommandState.REFUSED), why, time.time(), run_id, *_OPEN_COMMANDS),
    )


def beat(connection: sqlite3.Connection, host_id: str, at: float) -> None:
    """Say that a host is alive (Unix seconds)."""
    connection.execute("UPDATE hosts SET heartbeat_at = ? WHERE host_id = ?", (at, host_id))
