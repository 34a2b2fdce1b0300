"""The run directory: what people read with other tools, written beside the store and rebuildable from it.

``run.json`` · ``config.toml`` · ``steps.jsonl`` · ``rollouts.jsonl`` · ``evals.jsonl`` · ``eval_rollouts.jsonl`` ·
``transcripts/<group>-<attempt>.json`` (of evaluations the group's number is negative) · ``run.log``. Everything here is
read back from the store's file, so secrets are gone already.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.store.codec import column_names, decode_row, unpack_transcript
from engine.store.errors import StoreError
from engine.store.rows import (
    AttemptRow,
    EvalRow,
    GroupRow,
    GroupState,
    LogRow,
    RunRow,
    StepRow,
    TranscriptRow,
)

_FINAL_GROUPS = frozenset({GroupState.TRAINED, GroupState.EVALUATED, GroupState.REJECTED, GroupState.LOST})
_LONGEST_NAME = 80
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: ids are read aloud and typed


def new_run_id(now: float | None = None) -> str:
    """A sortable, unique id such as ``20261129-143501-k3f9`` (local time)."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{stamp}-{''.join(secrets.choice(_ALPHABET) for _ in range(4))}"


def safe_name(name: str) -> str:
    """A name that is one harmless path component: letters, digits, dot, dash, underscore; never hidden or empty."""
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:_LONGEST_NAME]
    return clean or "run"


def run_directory(output_dir: Path, name: str, run_id: str) -> Path:
    """Where a run's directory lies: ``<output_dir>/<name>/<run_id>``."""
    return output_dir / safe_name(name) / safe_name(run_id)


class RunDirectory:
    """Writes the files of one run. All methods raise OSError where the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, run: RunRow) -> None:
        """Make the directory with ``run.json`` and ``config.toml``. Raises StoreError where that fails."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.path / "transcripts").mkdir(mode=0o700, exist_ok=True)
            self._replace("config.toml", run.config_toml)
            self.write_run(run)
        except OSError as error:
            raise StoreError(
                f"the run directory {self.path} could not be made: {error.strerror or error}"
            ) from error

    def write_run(self, run: RunRow) -> None:
        """Replace ``run.json`` in one atomic move."""
        fields = {**dataclasses.asdict(run), "state": str(run.state)}
        del fields["config_toml"]
        self._replace("run.json", dump_file_json(fields, indent=2) + "\n")

    def append_steps(self, steps: Iterable[StepRow]) -> None:
        """One line per finished step: its number, times, version, and the metrics by their names."""
        self._append("steps.jsonl", (step_line(step) for step in steps))

    def append_rollouts(self, group: GroupRow, attempts: Iterable[AttemptRow]) -> None:
        """One line per attempt of a decided group; those of evaluations in a file of their own."""
        name = "rollouts.jsonl" if group.eval_id is None else "eval_rollouts.jsonl"
        self._append(name, (rollout_line(group, attempt) for attempt in attempts))

    def append_evals(self, rows: Iterable[EvalRow]) -> None:
        """One line per evaluation that has ended."""
        self._append("evals.jsonl", (eval_line(row) for row in rows))

    def append_log(self, rows: Iterable[LogRow]) -> None:
        self._append("run.log", (log_line(row) for row in rows))

    def write_transcript(self, row: TranscriptRow) -> None:
        name = f"transcripts/{transcript_file(row.group_id, row.attempt)}"
        self._replace(name, transcript_json(row) + "\n")

    def keep_transcripts(self, names: Collection[str]) -> set[str]:
        """Remove the transcripts of all other names; returns the names of those that are there."""
        there = {file.name for file in (self.path / "transcripts").glob("*.json")}
        for name in there.difference(names):
            (self.path / "transcripts" / name).unlink(missing_ok=True)
        return there.intersection(names)

    def clear(self) -> None:
        """Remove the files that grow by appending, before a rebuild writes them anew."""
        for name in ("steps.jsonl", "rollouts.jsonl", "evals.jsonl", "eval_rollouts.jsonl", "run.log"):
            (self.path / name).unlink(missing_ok=True)

    def _append(self, name: str, lines: Iterator[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        if text:
            descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)

    def _replace(self, name: str, text: str) -> None:
        target = self.path / name
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        temporary.replace(target)


def transcript_file(group_id: int, attempt: int) -> str:
    return f"{group_id:06d}-{attempt:03d}.json"


def transcript_json(row: TranscriptRow) -> str:
    """A transcript as one JSON object; written turn by turn, so that a long one lets other threads run."""
    turns = ", ".join(map(dump_file_json, row.turns))
    fields = {
        name: dump_file_json(getattr(row, name)) for name in column_names(TranscriptRow) if name != "turns"
    }
    fields["turns"] = f"[{turns}]"
    return "{" + ", ".join(f'"{name}": {fields[name]}' for name in column_names(TranscriptRow)) + "}"


def step_line(step: StepRow) -> str:
    head = {
        "step": step.step,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "policy_version": step.policy_version,
    }
    # A step's line is written once, when it ends; an evaluation of it comes later and has a line of its own.
    metrics = {name: value for name, value in step.metrics.items() if not name.startswith("eval/")}
    return dump_file_json({**head, **metrics})


def eval_line(row: EvalRow) -> str:
    fields = dataclasses.asdict(row)
    for name in ("run_id", "host_id", "metrics"):
        del fields[name]
    return dump_file_json({**fields, **row.metrics})


def rollout_line(group: GroupRow, attempt: AttemptRow) -> str:
    fields = {**_fields(attempt), "state": str(attempt.state)}
    del fields["run_id"]
    about = {
        "step": group.step,
        "task_id": group.task_id,
        "task_index": group.task_index,
        "group_state": str(group.state),
        "group_reason": group.reason,
        **({} if group.eval_id is None else {"eval_id": group.eval_id}),
    }
    return dump_file_json({**fields, **about})


def _fields(row: Any) -> dict[str, Any]:
    """A row's fields as they are: ``asdict`` would copy every token of a transcript first."""
    return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}


def log_line(row: LogRow) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(row.at))
    text = row.text.replace("\r", "\\r").replace("\n", "\n    ")
    return f"{stamp} {row.level:<7} {row.source}: {text}"


def dump_file_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON for other tools: what JSON has no number for becomes null."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return value


class RunFiles:
    """Keeps a live run's directory up to date, from the writer's thread, with what was just committed."""

    def __init__(self, run_id: str, directory: RunDirectory, last_log_id: int = 0) -> None:
        self._run_id = run_id
        self._directory = directory
        self._lock = threading.Lock()
        self._run = False
        self._last_log_id = last_log_id
        self._steps: set[int] = set()
        self._groups: set[int] = set()
        self._written_steps: set[int] = set()
        self._written_groups: set[int] = set()
        self._begun_groups: set[int] = set()
        self._evals: set[str] = set()
        self._written_evals: set[str] = set()

    def run_changed(self) -> None:
        self._run = True

    def step_changed(self, row: StepRow) -> None:
        if row.state == "done":
            with self._lock:
                self._run = True
                if row.step not in self._written_steps:
                    self._steps.add(row.step)

    def group_changed(self, row: GroupRow) -> None:
        with self._lock:
            self._begun_groups.add(row.group_id)
            if row.state in _FINAL_GROUPS and row.group_id not in self._written_groups:
                self._groups.add(row.group_id)

    def evaluation_changed(self, row: EvalRow) -> None:
        with self._lock:
            if row.state != "running" and row.eval_id not in self._written_evals:
                self._evals.add(row.eval_id)

    def finish(self, connection: sqlite3.Connection) -> None:
        """Write what the run's end left undecided: its groups in flight, and the last state. Raises OSError."""
        with self._lock:
            self._groups |= self._begun_groups - self._written_groups
            self._run = True
        self._write(connection, undecided=True)

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Write what the last commits made final. Raises OSError."""
        self._write(connection, undecided=False)

    def _write(self, connection: sqlite3.Connection, *, undecided: bool) -> None:
        with self._lock:
            run, self._run = self._run, False
            steps, groups, evals = sorted(self._steps), sorted(self._groups), set(self._evals)
        # A row that was handed over after the commit is not in the file yet: its turn comes with the next commit.
        done = [row for row in _steps(connection, self._run_id, steps) if row.state == "done"]
        if not undecided:
            groups = [group_id for group_id in groups if _decided(connection, self._run_id, group_id)]
        ended = [row for row in _evals(connection, self._run_id) if row.eval_id in evals] if evals else []
        with self._lock:
            written = {row.step for row in done}
            self._steps -= written
            self._written_steps |= written
            self._groups.difference_update(groups)
            self._written_groups.update(groups)
            told = {row.eval_id for row in ended}
            self._evals -= told
            self._written_evals |= told
        self._directory.append_steps(done)
        for group_id in groups:
            write_group(connection, self._directory, self._run_id, group_id)
        self._directory.append_evals(ended)
        if rows := read_log(connection, self._run_id, self._last_log_id):
            self._directory.append_log(rows)
            self._last_log_id = rows[-1].log_id
        if run:
            row = connection.execute("SELECT * FROM runs WHERE run_id = ?", (self._run_id,)).fetchone()
            if row is not None:
                self._directory.write_run(decode_row(RunRow, row))


def _decided(connection: sqlite3.Connection, run_id: str, group_id: int) -> bool:
    row = connection.execute(
        "SELECT state FROM groups WHERE run_id = ? AND group_id = ?", (run_id, group_id)
    ).fetchone()
    return row is not None and GroupState(row["state"]) in _FINAL_GROUPS


def _steps(connection: sqlite3.Connection, run_id: str, steps: list[int]) -> list[StepRow]:
    found: list[StepRow] = []
    for step in steps:
        row = connection.execute(
            "SELECT * FROM steps WHERE run_id = ? AND step = ?", (run_id, step)
        ).fetchone()
        if row is not None:
            found.append(decode_row(StepRow, row))
    return found


def _evals(connection: sqlite3.Connection, run_id: str) -> list[EvalRow]:
    """A run's evaluations that have ended, oldest first."""
    rows = connection.execute(
        "SELECT * FROM evals WHERE run_id = ? AND state != 'running' ORDER BY created_at, eval_id", (run_id,)
    )
    return [decode_row(EvalRow, row) for row in rows]


def read_log(connection: sqlite3.Connection, run_id: str, after_id: int, limit: int = -1) -> list[LogRow]:
    """Log rows with an id above ``after_id``, oldest first; ``limit`` -1 is all."""
    rows = connection.execute(
        "SELECT * FROM log WHERE run_id = ? AND log_id > ? ORDER BY log_id LIMIT ?", (run_id, after_id, limit)
    )
    return [decode_row(LogRow, row) for row in rows]


def write_group(
    connection: sqlite3.Connection,
    directory: RunDirectory,
    run_id: str,
    group_id: int,
    there: Collection[str] = (),
) -> None:
    """Append a group's attempts to ``rollouts.jsonl`` and write their transcripts but those that are ``there``.

    Raises OSError.
    """
    key = (run_id, group_id)
    found = connection.execute("SELECT * FROM groups WHERE run_id = ? AND group_id = ?", key).fetchone()
    if found is None:
        return
    group = decode_row(GroupRow, found)
    attempts = connection.execute(
        "SELECT * FROM attempts WHERE run_id = ? AND group_id = ? ORDER BY attempt", key
    ).fetchall()
    directory.append_rollouts(group, (decode_row(AttemptRow, row) for row in attempts))
    for row in connection.execute("SELECT * FROM transcripts WHERE run_id = ? AND group_id = ?", key):
        if transcript_file(row["group_id"], row["attempt"]) not in there:
            directory.write_transcript(unpack_transcript(row))


def rebuild(
    connection: sqlite3.Connection, run: RunRow, path: Path, *, keep_transcripts: bool = False
) -> RunDirectory:
    """Write a run's whole directory anew from the store. Raises StoreError or OSError.

    ``keep_transcripts``: those that are there and that the store has are right already; all others are removed.
    """
    directory = RunDirectory(path)
    directory.create(run)
    directory.clear()
    there: set[str] = set()
    if keep_transcripts:
        keys = connection.execute(
            "SELECT group_id, attempt FROM transcripts WHERE run_id = ?", (run.run_id,)
        ).fetchall()
        there = directory.keep_transcripts({transcript_file(*key) for key in keys})
    steps = connection.execute(
        "SELECT * FROM steps WHERE run_id = ? AND state = 'done' ORDER BY step", (run.run_id,)
    )
    directory.append_steps([decode_row(StepRow, row) for row in steps])
    groups = connection.execute(
        "SELECT group_id FROM groups WHERE run_id = ? ORDER BY group_id", (run.run_id,)
    )
    for (group_id,) in groups.fetchall():
        write_group(connection, directory, run.run_id, group_id, there)
    directory.append_evals(_evals(connection, run.run_id))
    directory.append_log(read_log(connection, run.run_id, 0))
    return directory
