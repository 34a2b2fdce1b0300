"""Deleting the record of a run: everything that the store knows of it, never what still lives.

Transcripts go first and in pieces, so that a run that trains meanwhile is not kept from writing; the run's own row
goes last. A deletion that was cut short is finished by deleting again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from engine.store import hosts
from engine.store.errors import StoreError
from engine.store.history_queries import still_bills
from engine.store.rows import RunState

PIECE = 200
"""Transcripts deleted in one transaction: some ten milliseconds."""
_TABLES = ("steps", "groups", "attempts", "commands", "log", "leases", "checkpoints", "evals", "runs")

type _Call = Callable[[Callable[[sqlite3.Connection], int]], int]


def delete_run(call: _Call, run_id: str) -> None:
    """Delete a run's rows by ``call``, which runs a function in a write transaction of its own.

    Raises StoreError where the run is going on, may have sandboxes, or still bills.
    """
    while call(lambda connection: _delete_transcripts(connection, run_id)):
        pass
    call(lambda connection: _delete_rows(connection, run_id))


def refuse_living(connection: sqlite3.Connection, run_id: str) -> None:
    """Raise StoreError where the run's record is still needed."""
    run = hosts.read_run(connection, run_id)
    if not run.state.final:
        raise StoreError(f"run {run_id} is {run.state}: stop it first, then its record can be deleted")
    host = hosts.read_host(connection, run.host_id)
    if run.state is RunState.INTERRUPTED and host is not None and hosts.is_alive(host, time.time()):
        raise StoreError(f"run {run_id} has a host after all (process {host.pid} on {host.hostname})")
    left = connection.execute(
        "SELECT count(*) FROM leases WHERE run_id = ? AND state != 'released'", (run_id,)
    ).fetchone()[0]
    if left:
        sandboxes = "a sandbox" if left == 1 else f"{left} sandboxes"
        raise StoreError(
            f"run {run_id} may still have {sandboxes}: clean up first, the record is how they are found"
        )
    if still_bills(run):
        raise StoreError(
            f"run {run_id} still bills on Loops: deactivate it first, the record is how it is found"
        )


def _delete_transcripts(connection: sqlite3.Connection, run_id: str) -> int:
    refuse_living(connection, run_id)
    ids = tuple(
        str(row[0])
        for row in connection.execute(
            "SELECT transcript_id FROM transcripts WHERE run_id = ? LIMIT ?", (run_id, PIECE)
        )
    )
    for table, column in (("transcript_text", "rowid"), ("transcripts", "transcript_id")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN ({hosts.marks(ids)})", ids)
    return len(ids)


def _delete_rows(connection: sqlite3.Connection, run_id: str) -> int:
    refuse_living(connection, run_id)
    _delete_transcripts(connection, run_id)
    return sum(
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,)).rowcount for table in _TABLES
    )
