"""Taking a run up again: what came after its last checkpoint leaves the store and the run directory.

Leases and the log stay: a sandbox that may exist must be known, and what happened is not undone by going back.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any

from engine.store import hosts
from engine.store.codec import decode_row, encode_field
from engine.store.errors import RunTaken
from engine.store.redact import Redactor
from engine.store.rows import CheckpointRow, CheckpointState, HostRow, RunRow, RunState


@dataclass(frozen=True, slots=True)
class TakeUp:
    """How a run goes on: after ``step`` steps, with groups from ``next_group`` on still to come.

    ``before`` is the host that had the run when this was decided. ``changes`` are further fields of the run's row as
    they are from now on.
    """

    run_id: str
    before: str | None
    step: int = 0
    next_group: int = 0
    changes: dict[str, Any] = field(default_factory=dict)


def last_checkpoint(connection: sqlite3.Connection, run_id: str) -> CheckpointRow | None:
    """The furthest checkpoint that Loops has whole."""
    row = connection.execute(
        "SELECT * FROM checkpoints WHERE run_id = ? AND state = ? AND trainer_path IS NOT NULL "
        "ORDER BY step DESC, saved_at DESC LIMIT 1",
        (run_id, str(CheckpointState.SAVED)),
    ).fetchone()
    return None if row is None else decode_row(CheckpointRow, row)


def take_up(connection: sqlite3.Connection, host: HostRow, wanted: TakeUp, redactor: Redactor) -> RunRow:
    """Claim an ended run for ``host`` and take back what it did after ``wanted.step``. One transaction.

    Raises RunTaken where the run has not ended, or where another process was quicker.
    """
    run = hosts.read_run(connection, wanted.run_id)
    other = hosts.read_host(connection, run.host_id)
    if not run.state.final:
        raise RunTaken(hosts.going_on(run, other))
    if run.host_id != wanted.before:
        raise RunTaken(
            f"run {run.run_id} was resumed by {hosts.who(other)} meanwhile and is {run.state} again; look at it, then "
            "resume it anew"
        )
    hosts.claim_run(connection, run.run_id, host, RunState.STARTING)
    _roll_back(connection, wanted)
    changes = {"step": wanted.step, "policy_version": wanted.step, "phase": "", **wanted.changes}
    sets = ", ".join(f"{name} = ?" for name in changes)
    values = [encode_field(RunRow, name, value, redactor) for name, value in changes.items()]
    connection.execute(f"UPDATE runs SET {sets} WHERE run_id = ?", [*values, run.run_id])
    return hosts.read_run(connection, run.run_id)


def _roll_back(connection: sqlite3.Connection, wanted: TakeUp) -> None:
    run_id, step = wanted.run_id, wanted.step
    # Evaluations of weights that the run is yet to train again are made again with them, and so are broken-off ones.
    evals = connection.execute(
        "DELETE FROM evals WHERE run_id = ? AND (state = 'running' OR (target = 'live' AND step > ?)) "
        "RETURNING eval_id",
        (run_id, step),
    ).fetchall()
    gone = connection.execute(
        "SELECT run_id, group_id FROM groups WHERE run_id = ? AND group_id >= ?", (run_id, wanted.next_group)
    ).fetchall()
    for (eval_id,) in evals:
        gone += connection.execute(
            "SELECT run_id, group_id FROM groups WHERE run_id = ? AND eval_id = ?", (run_id, eval_id)
        ).fetchall()
    groups = [tuple(row) for row in gone]
    connection.executemany(
        "DELETE FROM transcript_text WHERE rowid IN "
        "(SELECT transcript_id FROM transcripts WHERE run_id = ? AND group_id = ?)",
        groups,
    )
    for table in ("transcripts", "attempts", "groups"):
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ? AND group_id = ?", groups)
    connection.execute("DELETE FROM steps WHERE run_id = ? AND step > ?", (run_id, step))
    connection.execute(
        "UPDATE checkpoints SET state = ?, error = ? WHERE run_id = ? AND state = ?",
        (
            str(CheckpointState.FAILED),
            "the process that saved it ended before Loops had answered",
            run_id,
            str(CheckpointState.SAVING),
        ),
    )
