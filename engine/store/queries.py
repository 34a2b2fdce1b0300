"""What readers ask of the store: short read-only queries, safe from any thread."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from engine.store.codec import decode_row, unpack_transcript
from engine.store.errors import StoreError, explain
from engine.store.history_queries import HistoryQueries
from engine.store.hosts import is_alive, marks
from engine.store.leases import LeaseQueries
from engine.store.measured import MeasuredQueries
from engine.store.references import resolve, resolve_checkpoint
from engine.store.resume import last_checkpoint
from engine.store.rows import (
    FINAL_STATES,
    AttemptRow,
    CheckpointRow,
    CheckRow,
    CommandRow,
    EvalRow,
    GroupRow,
    HostRow,
    LogRow,
    RunRow,
    RunState,
    StepRow,
    TranscriptRow,
)
from engine.store.run_queries import RunQueries
from engine.store.rundir import read_log
from engine.store.schema import connect
from engine.store.search import SearchHit, search_transcripts

_FINAL = tuple(str(state) for state in sorted(FINAL_STATES))


class StoreReader(LeaseQueries, MeasuredQueries, HistoryQueries, RunQueries):
    """Reads the store; every method may be called from any thread and raises StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._open: list[sqlite3.Connection] = []
        self._watch: sqlite3.Connection | None = None
        self._closed = False

    def close(self) -> None:
        """Let go of the file; queries of other threads that are under way fail."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                connection.close()
            self._open.clear()
            self._idle.clear()
            self._watch = None

    def data_version(self) -> int:
        """A number that changes whenever anybody commits to the store; cheap enough for every frame."""
        with self._lock:
            if self._watch is None:
                self._watch = self._connect()
            try:
                return int(self._watch.execute("PRAGMA data_version").fetchone()[0])
            except sqlite3.Error as error:
                raise explain(error, self.path) from error

    # -- runs ---------------------------------------------------------------------------------------------------

    def runs(
        self, limit: int = 1000, *, states: Collection[RunState] | None = None, text: str = ""
    ) -> list[RunRow]:
        """Runs, live ones first, then newest first; ``text`` must occur in id, name, model, recipe or config path."""
        wheres: list[str] = []
        values: list[object] = []
        if states is not None:
            names = tuple(str(state) for state in states)
            wheres.append(f"state IN ({marks(names)})")
            values.extend(names)
        if text:
            about = "run_id || ' ' || name || ' ' || base_model || ' ' || recipe || ' ' || config_path"
            wheres.append(f"instr(lower({about}), lower(?)) > 0")
            values.append(_bindable(text))
        where = f"WHERE {' AND '.join(wheres)}" if wheres else ""
        order = f"ORDER BY state IN ({marks(_FINAL)}), created_at DESC, run_id DESC LIMIT ?"
        return self._rows(RunRow, f"SELECT * FROM runs {where} {order}", [*values, *_FINAL, limit])

    def run(self, ref: str) -> RunRow:
        """The run that a person means: an id, a run directory, a unique beginning of either, or the Loops run id.

        Raises StoreError with the candidates where it is unknown or not unique.
        """
        with self._reading() as connection:
            return resolve(connection, _bindable(ref))

    def get_run(self, run_id: str) -> RunRow | None:
        """The run with exactly this id."""
        found = self._rows(RunRow, "SELECT * FROM runs WHERE run_id = ?", [run_id])
        return found[0] if found else None

    def host(self, host_id: str | None) -> HostRow | None:
        """A run's host, or None where it has none."""
        if host_id is None:
            return None
        found = self._rows(HostRow, "SELECT * FROM hosts WHERE host_id = ?", [host_id])
        return found[0] if found else None

    def live_hosts(self, now: float) -> dict[str, HostRow]:
        """The hosts that work right now (``now`` in Unix seconds), by id."""
        hosts = self._rows(HostRow, "SELECT * FROM hosts ORDER BY heartbeat_at DESC LIMIT 100", [])
        return {host.host_id: host for host in hosts if is_alive(host, now)}

    def rewards(self, run_ids: Sequence[str], points: int = 60) -> dict[str, list[float]]:
        """The mean rewards of each run's newest steps, oldest first: enough for a spark."""
        found: dict[str, list[float]] = {}
        with self._reading() as connection:
            for run_id in run_ids:
                rows = connection.execute(
                    "SELECT reward_mean FROM steps WHERE run_id = ? AND reward_mean IS NOT NULL "
                    "ORDER BY step DESC LIMIT ?",
                    (run_id, points),
                ).fetchall()
                found[run_id] = [row[0] for row in reversed(rows)]
        return found

    # -- inside one run -----------------------------------------------------------------------------------------

    def steps(self, run_id: str, after_step: int = 0) -> list[StepRow]:
        """Steps with a number above ``after_step``, in order."""
        return self._rows(
            StepRow, "SELECT * FROM steps WHERE run_id = ? AND step > ? ORDER BY step", [run_id, after_step]
        )

    def groups(
        self, run_id: str, limit: int = 200, offset: int = 0, *, step: int | None = None
    ) -> list[GroupRow]:
        """Groups, newest first; with ``step`` only those collected for it."""
        where, values = ("", [run_id]) if step is None else ("AND step = ?", [run_id, step])
        return self._rows(
            GroupRow,
            f"SELECT * FROM groups WHERE run_id = ? {where} ORDER BY group_id DESC LIMIT ? OFFSET ?",
            [*values, limit, offset],
        )

    def group(self, run_id: str, group_id: int) -> GroupRow | None:
        found = self._rows(
            GroupRow, "SELECT * FROM groups WHERE run_id = ? AND group_id = ?", [run_id, group_id]
        )
        return found[0] if found else None

    def attempts(self, run_id: str, group_id: int) -> list[AttemptRow]:
        """The attempts of one group, in order."""
        return self._rows(
            AttemptRow,
            "SELECT * FROM attempts WHERE run_id = ? AND group_id = ? ORDER BY attempt",
            [run_id, group_id],
        )

    def transcript(self, run_id: str, group_id: int, attempt: int) -> TranscriptRow | None:
        """The conversation of an attempt, or None where none was kept."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT * FROM transcripts WHERE run_id = ? AND group_id = ? AND attempt = ?",
                (run_id, group_id, attempt),
            ).fetchone()
            return None if row is None else unpack_transcript(row)

    def search(self, run_id: str | None, text: str, limit: int = 100) -> list[SearchHit]:
        """Transcripts that hold all words of ``text`` (of one run, or of all), newest first, with a snippet each."""
        with self._reading() as connection:
            return search_transcripts(connection, run_id, text, limit)

    def log(self, run_id: str, after_id: int = 0, limit: int = 1000) -> list[LogRow]:
        """Log lines with an id above ``after_id``, oldest first."""
        with self._reading() as connection:
            return read_log(connection, run_id, after_id, limit)

    def last_log(self, run_id: str, limit: int = 200) -> list[LogRow]:
        """The newest log lines, oldest first."""
        rows = self._rows(
            LogRow, "SELECT * FROM log WHERE run_id = ? ORDER BY log_id DESC LIMIT ?", [run_id, limit]
        )
        return rows[::-1]

    def commands(self, run_id: str, limit: int = 100) -> list[CommandRow]:
        """What was asked of the run's host, newest first."""
        return self._rows(
            CommandRow,
            "SELECT * FROM commands WHERE run_id = ? ORDER BY command_id DESC LIMIT ?",
            [run_id, limit],
        )

    def command(self, command_id: int) -> CommandRow | None:
        found = self._rows(CommandRow, "SELECT * FROM commands WHERE command_id = ?", [command_id])
        return found[0] if found else None

    def checks(self, config_path: str | None = None, limit: int = 20) -> list[CheckRow]:
        """Check reports, newest first, of one config or of all."""
        where, values = ("", []) if config_path is None else ("WHERE config_path = ?", [config_path])
        return self._rows(
            CheckRow, f"SELECT * FROM checks {where} ORDER BY check_id DESC LIMIT ?", [*values, limit]
        )

    def checkpoints(self, run_id: str | None = None, limit: int = 1000) -> list[CheckpointRow]:
        """Checkpoints, newest first, of one run or of all."""
        where, values = ("", []) if run_id is None else ("WHERE run_id = ?", [run_id])
        order = "ORDER BY created_at DESC, step DESC LIMIT ?"
        return self._rows(CheckpointRow, f"SELECT * FROM checkpoints {where} {order}", [*values, limit])

    def checkpoint(self, ref: str) -> CheckpointRow:
        """The saved checkpoint that "RUN" (its furthest) or "RUN@step-000010" means.

        Raises UnknownRun or UnknownCheckpoint.
        """
        with self._reading() as connection:
            return resolve_checkpoint(connection, _bindable(ref))

    def last_checkpoint(self, run_id: str) -> CheckpointRow | None:
        """The furthest checkpoint of a run that Loops has whole: what a resume goes on from."""
        with self._reading() as connection:
            return last_checkpoint(connection, run_id)

    def evals(self, run_id: str | None = None, limit: int = 1000) -> list[EvalRow]:
        """Evaluations, newest first, of one run or of all."""
        where, values = ("", []) if run_id is None else ("WHERE run_id = ?", [run_id])
        return self._rows(
            EvalRow, f"SELECT * FROM evals {where} ORDER BY created_at DESC LIMIT ?", [*values, limit]
        )

    # -- connections --------------------------------------------------------------------------------------------

    def _rows[RowT](self, row_type: type[RowT], sql: str, values: Sequence[object]) -> list[RowT]:
        with self._reading() as connection:
            return [decode_row(row_type, row) for row in connection.execute(sql, tuple(values))]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of this thread's own for one short read."""
        with self._lock:
            connection = self._idle.pop() if self._idle else self._connect()
        try:
            yield connection
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        finally:
            with self._lock:
                if not self._closed:
                    self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(f"store: {self.path} is closed already")
        try:
            connection = connect(self.path, read_only=True)
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        self._open.append(connection)
        return connection


def _bindable(text: str) -> str:
    """Text that sqlite takes as a value."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "")
