"""What an engine calls to tell its run's story. Nothing here waits, except the two flushes."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import time
from dataclasses import fields, replace
from typing import Any, Self

from engine.store.codec import (
    Column,
    encode_field,
    encode_row,
    pack_transcript,
    storable_text,
    upsert_sql,
)
from engine.store.errors import StoreError
from engine.store.redact import Redactor
from engine.store.rows import (
    AttemptRow,
    CheckpointRow,
    EvalRow,
    GroupRow,
    RunRow,
    RunState,
    StepRow,
    TranscriptRow,
)
from engine.store.rundir import RunFiles
from engine.store.writer import Writer

_RUN_FIELDS = frozenset(field.name for field in fields(RunRow)) - {"run_id", "host_id"}


class RowWrite:
    """Insert or replace one row."""

    def __init__(self, row: Any, redactor: Redactor) -> None:
        self._row = row
        self._redactor = redactor
        self._columns: list[Column] = []

    def prepare(self) -> None:
        self._columns = encode_row(self._row, self._redactor)

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute(upsert_sql(type(self._row)), self._columns)

    def after(self, older: Self) -> Self:
        return self


class StepWrite(RowWrite):
    """A step keeps its mean reward in a column of its own, so that a list of runs can draw it cheaply."""

    def apply(self, connection: sqlite3.Connection) -> None:
        super().apply(connection)
        row: StepRow = self._row
        # The run's first and last reward are of every group; a step without that number has the trained ones' at least.
        mean = row.metrics.get("reward/mean_with_unusable", row.metrics.get("reward/mean"))
        reward = encode_field(AttemptRow, "reward", mean, self._redactor)
        connection.execute(
            "UPDATE steps SET reward_mean = ? WHERE run_id = ? AND step = ?", (reward, row.run_id, row.step)
        )


class RunWrite:
    """Change some fields of a run's row."""

    def __init__(self, run_id: str, host_id: str | None, changes: dict[str, Any], redactor: Redactor) -> None:
        self._run_id = run_id
        self._host_id = host_id
        self._changes = changes
        self._redactor = redactor
        self._columns: dict[str, Column] = {}

    def prepare(self) -> None:
        self._columns = {
            name: encode_field(RunRow, name, value, self._redactor) for name, value in self._changes.items()
        }

    def apply(self, connection: sqlite3.Connection) -> None:
        sets = ", ".join(f"{name} = ?" for name in self._columns)
        # A host that lost its claim (another process resumed the run) must not write over its successor.
        mine = "" if self._host_id is None else " AND host_id = ?"
        values = [*self._columns.values(), self._run_id, *([] if self._host_id is None else [self._host_id])]
        connection.execute(f"UPDATE runs SET {sets} WHERE run_id = ?{mine}", values)

    def after(self, older: Self) -> Self:
        self._changes = {**older._changes, **self._changes}
        return self


class TranscriptWrite:
    """Store a transcript's body compressed and its text in the search index."""

    def __init__(self, row: TranscriptRow, redactor: Redactor) -> None:
        self._row = row
        self._redactor = redactor
        self._columns: tuple[Column, ...] = ()
        self._text = ""

    def prepare(self) -> None:
        body, self._text = pack_transcript(self._row, self._redactor)
        row = self._row
        self._columns = (
            row.run_id,
            row.group_id,
            row.attempt,
            encode_field(GroupRow, "task_id", row.task_id, self._redactor),
            encode_field(AttemptRow, "reward", row.reward, self._redactor),
            encode_field(AttemptRow, "ending", row.ending, self._redactor),
            body,
        )

    def apply(self, connection: sqlite3.Connection) -> None:
        (transcript_id,) = connection.execute(
            "INSERT INTO transcripts (run_id, group_id, attempt, task_id, reward, ending, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, group_id, attempt) DO UPDATE SET "
            "task_id = excluded.task_id, reward = excluded.reward, ending = excluded.ending, body = excluded.body "
            "RETURNING transcript_id",
            self._columns,
        ).fetchone()
        connection.execute(
            "INSERT OR REPLACE INTO transcript_text (rowid, text) VALUES (?, ?)", (transcript_id, self._text)
        )

    def after(self, older: Self) -> Self:
        return self


class LogWrite:
    """Append one line to a run's log."""

    def __init__(self, run_id: str, level: str, source: str, text: str, redactor: Redactor) -> None:
        self._columns: tuple[Column, ...] = (run_id, time.time(), level, source)
        self._text = text
        self._redactor = redactor

    def prepare(self) -> None:
        self._text = storable_text(self._redactor.text(self._text))

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO log (run_id, at, level, source, text) VALUES (?, ?, ?, ?, ?)",
            (*self._columns, self._text),
        )

    def after(self, older: Self) -> Self:
        return self


class RunRecorder:
    """Records one run: thread-safe, non-blocking, at most 250 ms behind; states of the run are committed at once.

    Rows may be changed and handed over again; the content at the time of the call is what is stored. All methods
    raise StoreError once the store has failed for longer than the writer's grace time, so a run ends with a clear
    reason instead of an untold story.
    """

    def __init__(
        self, writer: Writer, redactor: Redactor, run_id: str, *, host_id: str | None, files: RunFiles | None
    ) -> None:
        self.run_id = run_id
        self.redactor = redactor
        self._writer = writer
        self._host_id = host_id
        self._files = files
        self._numbers = itertools.count()
        self.state: RunState | None = None
        """The state recorded last, by whoever did it."""

    def run(self, **changes: Any) -> None:
        """Change fields of the RunRow. Raises TypeError for a name that is no field of it."""
        unknown = changes.keys() - _RUN_FIELDS
        if unknown:
            raise TypeError(f"RunRow has no field {', '.join(sorted(unknown))} that its recorder may set")
        if not changes:
            return
        if "info" in changes:
            changes["info"] = dict(changes["info"])
        if "state" in changes:
            self.state = changes["state"] = RunState(changes["state"])
        write = RunWrite(self.run_id, self._host_id, changes, self.redactor)
        self._writer.put(("runs", self.run_id), write, urgent="state" in changes)
        if self._files is not None:
            self._files.run_changed()

    def step(self, row: StepRow) -> None:
        self._own(row)
        copy = replace(row, metrics=dict(row.metrics))
        self._writer.put(("steps", row.run_id, row.step), StepWrite(copy, self.redactor))
        if self._files is not None:
            self._files.step_changed(row)

    def group(self, row: GroupRow) -> None:
        self._own(row)
        self._writer.put(("groups", row.run_id, row.group_id), RowWrite(replace(row), self.redactor))
        if self._files is not None:
            self._files.group_changed(row)

    def attempt(self, row: AttemptRow) -> None:
        self._own(row)
        copy = replace(
            row,
            timeline={name: list(span) for name, span in row.timeline.items()},
            metadata=dict(row.metadata),
        )
        self._writer.put(("attempts", row.run_id, row.group_id, row.attempt), RowWrite(copy, self.redactor))

    def transcript(self, row: TranscriptRow) -> None:
        """Store a conversation, whole. Entries of ``turns`` may grow afterwards; hand the row over again then."""
        self._own(row)
        copy = replace(
            row,
            turns=[_copy_turn(turn) for turn in row.turns],
            tools=list(row.tools),
            metadata=dict(row.metadata),
        )
        key = ("transcripts", row.run_id, row.group_id, row.attempt)
        self._writer.put(key, TranscriptWrite(copy, self.redactor))

    def checkpoint(self, row: CheckpointRow) -> None:
        """Store a checkpoint as it is now; ``flush`` after the intent, before Loops is asked."""
        self._own(row)
        copy = replace(row, metrics=dict(row.metrics), cursor=dict(row.cursor))
        self._writer.put(("checkpoints", row.run_id, row.name), RowWrite(copy, self.redactor), urgent=True)

    def evaluation(self, row: EvalRow) -> None:
        """Store an evaluation as it is now."""
        self._own(row)
        copy = replace(row, pass_at=dict(row.pass_at), per_task=dict(row.per_task), metrics=dict(row.metrics))
        self._writer.put(("evals", row.run_id, row.eval_id), RowWrite(copy, self.redactor))
        if self._files is not None:
            self._files.evaluation_changed(row)

    def log(self, level: str, source: str, text: str) -> None:
        """Add a line to the run's log; ``level`` is debug, info, warning or error."""
        write = LogWrite(self.run_id, level, source, text, self.redactor)
        self._writer.put(("log", self.run_id, next(self._numbers)), write)

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until everything recorded so far is in the file. Raises StoreError."""
        future = asyncio.wrap_future(self._writer.flush())
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError as error:
            raise self._late(timeout) from error

    def flush_blocking(self, timeout: float = 30.0) -> None:
        """As ``flush``, for threads without a loop. Raises StoreError."""
        try:
            self._writer.flush().result(timeout)
        except TimeoutError as error:
            raise self._late(timeout) from error

    def close(self, timeout: float = 30.0) -> None:
        """Write the run directory's last lines and let go of it; the run has ended. Raises StoreError."""
        self.flush_blocking(timeout)
        files, self._files = self._files, None
        if files is None:
            return

        def finish(connection: sqlite3.Connection) -> None:
            if files.after_commit not in self._writer.after_commit:
                return  # it could not be written, which was told when it happened
            self._writer.after_commit.remove(files.after_commit)
            try:
                files.finish(connection)
            except OSError as error:
                raise StoreError(f"store: the run directory could not be written: {error}") from error

        self._writer.call(finish, timeout)

    def _late(self, timeout: float) -> StoreError:
        return StoreError(f"store: {self._writer.path} was not written within {timeout:.0f} s")

    def _own(self, row: StepRow | GroupRow | AttemptRow | TranscriptRow | CheckpointRow | EvalRow) -> None:
        if row.run_id != self.run_id:
            raise ValueError(f"a row of run {row.run_id} was given to the recorder of {self.run_id}")


def _copy_turn(turn: dict[str, Any]) -> dict[str, Any]:
    """A copy that the engine's later additions cannot reach: entries, and the lists of a sampled reply."""
    copy = dict(turn)
    sampled = copy.get("sampled")
    if isinstance(sampled, dict):
        copy["sampled"] = {k: list(v) if isinstance(v, list) else v for k, v in sampled.items()}
    calls = copy.get("tool_calls")
    if isinstance(calls, list):
        copy["tool_calls"] = [dict(call) if isinstance(call, dict) else call for call in calls]
    return copy
