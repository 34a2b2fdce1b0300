"""Evaluations in the store: begun with groups of their own, and settled where the process that made them is gone.

Every function here runs inside one write transaction. An evaluation's groups have negative ids, so that a run's own
groups count up undisturbed, whichever process evaluates meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from engine.store import hosts
from engine.store.codec import encode_row, upsert_sql
from engine.store.redact import Redactor
from engine.store.rows import AttemptState, EvalRow, GroupRow, GroupState

LEFT = "the process that evaluated ended before it was through"


def begin_evaluation(
    connection: sqlite3.Connection, row: EvalRow, tasks: Sequence[tuple[str, int]], redactor: Redactor
) -> list[GroupRow]:
    """Store an evaluation under a name of its own, and one group for each task (id, index)."""
    row.eval_id = _free_name(connection, row.run_id, row.eval_id)
    lowest = connection.execute("SELECT min(group_id) FROM groups WHERE run_id = ?", (row.run_id,)).fetchone()
    first = min(lowest[0] or 0, 0) - 1
    now = time.time()
    groups = [
        GroupRow(
            run_id=row.run_id,
            group_id=first - place,
            state=GroupState.RUNNING,
            task_id=task_id,
            task_index=index,
            policy_version=row.step,
            started_at=now,
            eval_id=row.eval_id,
        )
        for place, (task_id, index) in enumerate(tasks)
    ]
    connection.execute(upsert_sql(EvalRow), encode_row(row, redactor))
    connection.executemany(upsert_sql(GroupRow), [encode_row(group, redactor) for group in groups])
    return groups


def _free_name(connection: sqlite3.Connection, run_id: str, wanted: str) -> str:
    taken = {name for (name,) in connection.execute("SELECT eval_id FROM evals WHERE run_id = ?", (run_id,))}
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def settle_evaluations(connection: sqlite3.Connection, now: float, *, host_id: str | None = None) -> None:
    """Give evaluations whose host is gone, or is ``host_id``, a true end. What was graded stays."""
    running = connection.execute(
        "SELECT run_id, eval_id, host_id FROM evals WHERE state = 'running'"
    ).fetchall()
    for run_id, eval_id, owner in running:
        if owner != host_id or owner is None:
            host = hosts.read_host(connection, owner)
            if host is not None and hosts.is_alive(host, now):
                continue
        connection.execute(
            "UPDATE evals SET state = 'stopped', ended_at = ?, error = coalesce(error, ?) "
            "WHERE run_id = ? AND eval_id = ?",
            (now, LEFT, run_id, eval_id),
        )
        _settle_groups(connection, run_id, eval_id, now)


def _settle_groups(connection: sqlite3.Connection, run_id: str, eval_id: str, now: float) -> None:
    connection.execute(
        f"UPDATE attempts SET state = ?, ended_at = coalesce(ended_at, ?) WHERE run_id = ? "
        f"AND group_id IN (SELECT group_id FROM groups WHERE run_id = ? AND eval_id = ?) "
        f"AND state IN ({hosts.marks(hosts.LIVE_ATTEMPTS)})",
        (str(AttemptState.CANCELLED), now, run_id, run_id, eval_id, *hosts.LIVE_ATTEMPTS),
    )
    connection.execute(
        "UPDATE groups SET state = ?, reason = 'stopped', ended_at = coalesce(ended_at, ?) "
        "WHERE run_id = ? AND eval_id = ? AND state = ?",
        (str(GroupState.LOST), now, run_id, eval_id, str(GroupState.RUNNING)),
    )
