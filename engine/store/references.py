"""Which run, or which checkpoint of one, a person means."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from engine.store.codec import decode_row
from engine.store.errors import UnknownCheckpoint, UnknownRun
from engine.store.resume import last_checkpoint
from engine.store.rows import CheckpointRow, CheckpointState, RunRow

_SHOWN = 8
"""Candidates named in an error."""


def resolve(connection: sqlite3.Connection, ref: str) -> RunRow:
    """The run behind an id, a run directory, a unique beginning of either, or a Loops run id.

    Raises UnknownRun, with candidates, where there is none or more than one.
    """
    ref = ref.strip()
    if not ref:
        raise UnknownRun("no run was named; give a run id, a run directory or a unique beginning of one")
    directory = str(Path(os.path.expanduser(ref)).resolve())
    exact = _find(
        connection,
        "run_id = ? OR loops_run_id = ? OR run_dir = ? OR run_dir = ?",
        (ref, ref, directory, ref.rstrip("/")),
    )
    if len(exact) == 1:
        return exact[0]
    # Only what looks like a path is compared with directories: "r" is no short form of "runs/…".
    path = directory if "/" in ref else ref
    found = exact or _find(
        connection,
        "substr(run_id, 1, length(?)) = ? OR substr(run_dir, 1, length(?)) = ?",
        (ref, ref, path, path),
    )
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownRun(f"{ref!r} fits {len(found)} runs; say which: {_list(found)}")
    newest = _find(connection, "1", ())
    if not newest:
        raise UnknownRun(f"there is no run {ref!r}: this project's store has no runs yet")
    raise UnknownRun(f"there is no run {ref!r} in this project's store; the newest are {_list(newest)}")


def resolve_checkpoint(connection: sqlite3.Connection, ref: str) -> CheckpointRow:
    """The saved checkpoint behind "RUN" (its furthest one) or "RUN@step-000010"; RUN as in ``resolve``.

    Raises UnknownRun or UnknownCheckpoint.
    """
    run_ref, at, name = ref.strip().rpartition("@")
    run = resolve(connection, run_ref if at else ref)
    if not at:
        found = last_checkpoint(connection, run.run_id)
        if found is None:
            raise UnknownCheckpoint(f"the run {run.run_id} has no saved checkpoint")
        return found
    rows = connection.execute(
        "SELECT * FROM checkpoints WHERE run_id = ? ORDER BY step", (run.run_id,)
    ).fetchall()
    checkpoints = [decode_row(CheckpointRow, row) for row in rows]
    saved = [row for row in checkpoints if row.state is CheckpointState.SAVED]
    for row in saved:
        if row.name == name:
            return row
    there = ", ".join(row.name for row in saved[-_SHOWN:]) or "none"
    state = next((f", it is {row.state}" for row in checkpoints if row.name == name), "")
    raise UnknownCheckpoint(
        f"the run {run.run_id} has no saved checkpoint {name!r}{state}; saved are {there}"
    )


def _find(connection: sqlite3.Connection, where: str, values: tuple[str, ...]) -> list[RunRow]:
    rows = connection.execute(
        f"SELECT * FROM runs WHERE {where} ORDER BY created_at DESC, run_id DESC", values
    )
    return [decode_row(RunRow, row) for row in rows]


def _list(runs: list[RunRow]) -> str:
    shown = ", ".join(f"{run.run_id} ({run.name}, {run.state})" for run in runs[:_SHOWN])
    return f"{shown}, …" if len(runs) > _SHOWN else shown
