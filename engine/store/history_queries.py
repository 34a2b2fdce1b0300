"""What a long history is asked for: lists that stay quick with thousands of runs, and ways from one row to the next."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.store.hosts import marks
from engine.store.rows import FINAL_STATES, CheckpointState, GroupRow, RunRow, RunState

_FINAL = tuple(str(state) for state in sorted(FINAL_STATES))


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """The newest checkpoint of a run that can be resumed from."""

    name: str
    step: int


@dataclass(frozen=True, slots=True)
class RecordSize:
    """How many rows a run has."""

    steps: int  # finished ones, as everywhere: a run that ended within a step has a row more
    groups: int
    attempts: int
    transcripts: int
    checkpoints: int


def still_bills(run: RunRow) -> bool:
    """Whether something of a run is up on Loops at the account's cost, as far as its row knows."""
    return run.scope != "local" and run.loops_run_id is not None and run.loops_state != "INACTIVE"


class _Reading(Protocol):
    def _rows[RowT](self, row_type: type[RowT], sql: str, values: Sequence[object]) -> list[RowT]: ...
    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]: ...


class HistoryQueries:
    """Part of StoreReader."""

    def run_states(self: _Reading, limit: int = 1000) -> list[tuple[str, RunState]]:
        """Ids and states in the order of ``runs``; far cheaper than the rows, which carry their configs."""
        sql = (
            f"SELECT run_id, state FROM runs ORDER BY state IN ({marks(_FINAL)}), created_at DESC, run_id DESC "
            "LIMIT ?"
        )
        with self._reading() as connection:
            return [(row[0], RunState(row[1])) for row in connection.execute(sql, (*_FINAL, limit))]

    def runs_by_id(self: _Reading, run_ids: Collection[str]) -> dict[str, RunRow]:
        """These runs' rows, by id; unknown ids are left out."""
        ids = tuple(run_ids)
        rows = self._rows(RunRow, f"SELECT * FROM runs WHERE run_id IN ({marks(ids)})", ids)
        return {row.run_id: row for row in rows}

    def billing_runs(self: _Reading) -> list[RunRow]:
        """The runs that still bill, the longest first."""
        sql = (
            "SELECT * FROM runs WHERE scope != 'local' AND loops_run_id IS NOT NULL AND loops_state IS NOT 'INACTIVE' "
            "ORDER BY loops_since"
        )
        return self._rows(RunRow, sql, [])

    def last_checkpoints(self: _Reading) -> dict[str, LastCheckpoint]:
        """For each run that has one, the saved checkpoint of its highest step."""
        sql = (
            "SELECT run_id, name, max(step) FROM checkpoints WHERE state = ? AND trainer_path IS NOT NULL "
            "GROUP BY run_id"
        )
        with self._reading() as connection:
            rows = connection.execute(sql, (str(CheckpointState.SAVED),))
            return {row[0]: LastCheckpoint(row[1], row[2]) for row in rows}

    def record_size(self: _Reading, run_id: str) -> RecordSize:
        """How much the store holds of a run."""
        tables = (
            "steps WHERE state = 'done' AND",
            "groups WHERE",
            "attempts WHERE",
            "transcripts WHERE",
            "checkpoints WHERE",
        )
        counts = ", ".join(f"(SELECT count(*) FROM {table} run_id = :run)" for table in tables)
        with self._reading() as connection:
            return RecordSize(*connection.execute(f"SELECT {counts}", {"run": run_id}).fetchone())

    def neighbour_group(self: _Reading, run_id: str, group_id: int, by: int) -> GroupRow | None:
        """The group after (``by`` = 1) or before (-1) this one that has attempts: in its step first, then beyond.

        Groups of training and of each evaluation are rows of their own.
        """
        sign, order = (">", "ASC") if by > 0 else ("<", "DESC")
        # Groups of an evaluation count down from -1; a step that is not known yet is the newest.
        where = "(coalesce(g.step, 1 << 60), abs(g.group_id))"
        found = self._rows(
            GroupRow,
            f"""SELECT g.* FROM groups g, groups here WHERE here.run_id = ? AND here.group_id = ?
                AND g.run_id = here.run_id AND g.eval_id IS here.eval_id
                AND {where} {sign} (coalesce(here.step, 1 << 60), abs(here.group_id))
                AND EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = g.run_id AND a.group_id = g.group_id)
                ORDER BY coalesce(g.step, 1 << 60) {order}, abs(g.group_id) {order} LIMIT 1""",
            [run_id, group_id],
        )
        return found[0] if found else None
