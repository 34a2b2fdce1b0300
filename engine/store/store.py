"""The store of one project directory: open it, record into it, ask of it, change it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from engine.store import hosts
from engine.store.codec import decode_row, dump_json, encode_field, encode_row, upsert_sql
from engine.store.deletion import delete_run
from engine.store.errors import StoreError, explain
from engine.store.evaluations import begin_evaluation, settle_evaluations
from engine.store.queries import StoreReader
from engine.store.recorder import RunRecorder
from engine.store.redact import Redactor
from engine.store.resume import TakeUp, take_up
from engine.store.rows import (
    CheckRow,
    CommandRow,
    CommandState,
    EvalRow,
    GroupRow,
    HostRow,
    RunRow,
    RunState,
)
from engine.store.rundir import RunDirectory, RunFiles, rebuild
from engine.store.schema import connect, prepare_directory, store_path
from engine.store.writer import Writer, WriterPool

COMMAND_KINDS = ("pause", "resume", "stop", "abort", "save", "evaluate")
_CHECKS_KEPT = 20
"""Reports kept for each config."""

_POOL = WriterPool()
"""A process writes through one connection, however many parts of it have the store open."""


class Store:
    """One writer thread, any number of readers. Use ``Store.open``; close it when done.

    Methods without "raises" raise StoreError too: a locked file or a full disk ends in one clear sentence.
    """

    def __init__(self, project_dir: Path, writer: Writer, redactor: Redactor) -> None:
        self.project_dir = project_dir
        self.redactor = redactor
        self._writer = writer
        self._readers: list[StoreReader] = []
        self._report: Callable[[StoreError], None] | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        project_dir: Path,
        *,
        redactor: Redactor | None = None,
        on_error: Callable[[StoreError], None] | None = None,
    ) -> Store:
        """Open the store of a project directory, and make it where there is none.

        ``on_error`` is called from the writer's thread when rows cannot be written. Raises StoreError.
        """
        project_dir = project_dir.resolve()
        prepare_directory(project_dir)
        store = cls(
            project_dir,
            _POOL.take(store_path(project_dir)),
            redactor or Redactor.from_environment(os.environ),
        )
        store.on_error(on_error)
        return store

    @staticmethod
    def exists(project_dir: Path) -> bool:
        """Whether the project directory has a store already (opening would make one)."""
        return store_path(project_dir).is_file()

    @property
    def path(self) -> Path:
        return self._writer.path

    @property
    def error(self) -> StoreError | None:
        """What keeps the store from writing right now, if anything has for longer than a moment."""
        return self._writer.error

    def on_error(self, report: Callable[[StoreError], None] | None) -> None:
        """Who is told, in the writer's thread, when rows cannot be written; None: at ``close`` only."""
        if self._report is not None:
            self._writer.listeners.remove(self._report)
        self._report = report
        if report is not None:
            self._writer.listeners.append(report)

    def close(self) -> None:
        """Write what waits and let go of the file. Raises StoreError where rows were lost."""
        if self._closed:
            return
        self._closed = True
        self.on_error(None)
        for reader in self._readers:
            reader.close()
        self._readers.clear()
        _POOL.give_back(self._writer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def reader(self) -> StoreReader:
        """A reader for any thread; it is closed with the store."""
        reader = StoreReader(self.path)
        self._readers.append(reader)
        return reader

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until everything handed over so far is in the file."""
        try:
            self._writer.flush().result(timeout)
        except TimeoutError as error:
            raise StoreError(f"store: {self.path} was not written within {timeout:.0f} s") from error

    def submit[T](self, act: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``act`` in a write transaction of its own, at once and durably (for the journal of leases)."""
        return self._writer.submit(act)

    # -- runs and hosts -----------------------------------------------------------------------------------------

    def create_run(self, run: RunRow) -> None:
        """Store a new run and make its directory. Raises StoreError where the id is taken."""
        clean = encode_row(run, self.redactor)

        def insert(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run.run_id,)).fetchone():
                raise StoreError(f"there is a run {run.run_id} already")
            connection.execute(upsert_sql(RunRow), clean)
            RunDirectory(Path(run.run_dir)).create(hosts.read_run(connection, run.run_id))

        self._writer.call(insert)

    def recorder(self, run_id: str, *, host_id: str | None = None, files: bool = True) -> RunRecorder:
        """What the engine tells its story to. It keeps the run directory up to date too, unless ``files`` is False.

        With ``host_id`` it stops changing the run's row once another host has claimed the run.
        """

        def begin(connection: sqlite3.Connection) -> tuple[RunRow, int]:
            last = connection.execute("SELECT max(log_id) FROM log WHERE run_id = ?", (run_id,)).fetchone()[0]
            return hosts.read_run(connection, run_id), last or 0

        run, last_log_id = self._writer.call(begin)
        kept: RunFiles | None = None
        if files:
            directory = RunDirectory(Path(run.run_dir))
            directory.create(run)
            kept = RunFiles(run_id, directory, last_log_id)
            self._writer.after_commit.append(kept.after_commit)
        return RunRecorder(self._writer, self.redactor, run_id, host_id=host_id, files=kept)

    def claim(self, run_id: str, host: HostRow, state: RunState = RunState.STARTING) -> RunRow:
        """Make ``host`` the host of the run. Raises StoreError where another live host has it."""
        return self._writer.call(lambda connection: hosts.claim_run(connection, run_id, host, state))

    def take_up(self, host: HostRow, wanted: TakeUp) -> RunRow:
        """Make ``host`` the host of an ended run that goes on from ``wanted``; what it did after that is taken back.

        The run directory then says what the store says. Raises StoreError where the run has not ended.
        """
        run = self._writer.call(
            lambda connection: take_up(connection, host, wanted, self.redactor), timeout=120.0
        )
        self.rebuild_directory(run.run_id, Path(run.run_dir), keep_transcripts=True)
        return run

    def heartbeat(self, host_id: str) -> None:
        """Say, without waiting, that this process's host is alive."""
        self._writer.put(("heartbeat", host_id), _Beat(host_id, time.time()))

    def reassert(self, run_id: str, host_id: str, state: RunState) -> bool:
        """Whether the run is still this host's; one that a sleep made look dead is given its state back."""

        def look(connection: sqlite3.Connection) -> bool:
            run = hosts.read_run(connection, run_id)
            if run.host_id != host_id:
                return False
            if run.state is RunState.INTERRUPTED:
                connection.execute(
                    "UPDATE runs SET state = ?, error = NULL, ended_at = NULL WHERE run_id = ?",
                    (str(state), run_id),
                )
            return True

        return self._writer.call(look)

    def end_run(self, run_id: str, host_id: str, state: RunState, error: str | None) -> None:
        """Give a run its final state, and a true one to everything that was still in flight in it."""
        text = None if error is None else self.redactor.text(error)

        def end(connection: sqlite3.Connection) -> None:
            if hosts.read_run(connection, run_id).host_id != host_id:
                return
            now = time.time()
            connection.execute(
                "UPDATE runs SET state = ?, error = ?, ended_at = ?, phase = '' WHERE run_id = ?",
                (str(state), text, now, run_id),
            )
            settle_evaluations(connection, now, host_id=host_id)
            hosts.settle_in_flight(connection, run_id, str(state), now)
            hosts.refuse_commands(connection, run_id, f"the run has ended ({state})")

        self._writer.call(end)

    def delete_run(self, run_id: str) -> None:
        """Delete everything that the store holds of a run; its directory and what is on Loops stay.

        Raises StoreError where the run goes on, may still have sandboxes, or still bills.
        """
        delete_run(self._writer.call, run_id)

    def reconcile(self) -> list[str]:
        """Mark the runs whose host is gone INTERRUPTED; returns their ids."""

        def mark(connection: sqlite3.Connection) -> list[RunRow]:
            settle_evaluations(connection, time.time())
            return [hosts.read_run(connection, run_id) for run_id in hosts.reconcile(connection)]

        runs = self._writer.call(mark)
        for run in runs:
            # The host that kept the run's directory is gone; the directory may be as well.
            with contextlib.suppress(OSError):
                RunDirectory(Path(run.run_dir)).write_run(run)
        return [run.run_id for run in runs]

    def rebuild_directory(self, run_id: str, path: Path, *, keep_transcripts: bool = False) -> RunDirectory:
        """Write the run directory anew from the store; transcripts that are there may be kept as they are.

        Raises StoreError where the disk refuses.
        """
        self.flush()
        try:
            # Not in the writer's thread: a long run's export would hold up heartbeats.
            with contextlib.closing(connect(self.path, read_only=True)) as connection:
                run = hosts.read_run(connection, run_id)
                return rebuild(connection, run, path, keep_transcripts=keep_transcripts)
        except OSError as error:
            raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise explain(error, self.path) from error

    # -- evaluations --------------------------------------------------------------------------------------------

    def begin_evaluation(self, row: EvalRow, tasks: Sequence[tuple[str, int]]) -> list[GroupRow]:
        """Store an evaluation and a group for each of its tasks (id, index); durable at once.

        ``row.eval_id`` becomes unique in its run by a number at its end; the groups' ids go on below all others of
        the run.
        """
        return self._writer.call(lambda connection: begin_evaluation(connection, row, tasks, self.redactor))

    def register_host(self, host: HostRow) -> None:
        """Say that this process works on something beside runs; ``heartbeat`` keeps it known, ``forget_host`` ends it."""
        columns = encode_row(host, self.redactor)
        self._writer.call(lambda connection: connection.execute(upsert_sql(HostRow), columns).rowcount)

    def forget_host(self, host_id: str) -> None:
        """The host has let go of everything."""
        self._writer.call(
            lambda connection: connection.execute("DELETE FROM hosts WHERE host_id = ?", (host_id,)).rowcount
        )

    # -- commands -----------------------------------------------------------------------------------------------

    def request(self, run_id: str, kind: str, args: dict[str, Any] | None = None) -> CommandRow:
        """Ask the run's host for something; durable at once. Raises StoreError where nobody would carry it out."""
        if kind not in COMMAND_KINDS:
            raise StoreError(f"there is no command {kind}; there are {', '.join(COMMAND_KINDS)}")

        def insert(connection: sqlite3.Connection) -> CommandRow:
            run = hosts.read_run(connection, run_id)
            if run.state.final:
                hint = f"; `loops-tui run --resume {run_id}` goes on with it" if kind == "resume" else ""
                raise StoreError(
                    f"run {run_id} has ended already ({run.state}); there is nothing to {kind}{hint}"
                )
            if run.host_id is not None and hosts.live_host(connection, run, time.time()) is None:
                raise StoreError(f"run {run_id} is {run.state}, but its host is gone; nobody would {kind} it")
            cursor = connection.execute(
                "INSERT INTO commands (run_id, kind, state, created_at, args) VALUES (?, ?, ?, ?, ?)",
                (
                    run_id,
                    kind,
                    str(CommandState.QUEUED),
                    time.time(),
                    dump_json(self.redactor.value(args or {})),
                ),
            )
            return _command(connection, cursor.lastrowid or 0)

        return self._writer.call(insert)

    def take_commands(self, run_id: str) -> list[CommandRow]:
        """The queued commands of a run, oldest first; they become ``accepted``."""

        def take(connection: sqlite3.Connection) -> list[CommandRow]:
            rows = connection.execute(
                "UPDATE commands SET state = ? WHERE run_id = ? AND state = ? RETURNING *",
                (str(CommandState.ACCEPTED), run_id, str(CommandState.QUEUED)),
            ).fetchall()
            return sorted((decode_row(CommandRow, row) for row in rows), key=lambda row: row.command_id)

        return self._writer.call(take)

    def answer(self, command_id: int, state: CommandState, text: str | None = None) -> None:
        """Answer a command in its own row."""
        answer = encode_field(CommandRow, "answer", text, self.redactor)
        self._writer.call(
            lambda connection: (
                connection.execute(
                    "UPDATE commands SET state = ?, answer = ?, answered_at = ? WHERE command_id = ?",
                    (str(state), answer, time.time(), command_id),
                ).rowcount
            )
        )

    # -- checks -------------------------------------------------------------------------------------------------

    def add_check(
        self, config_path: str, *, ok: bool, findings: Iterable[dict[str, Any]], lines: Iterable[str]
    ) -> CheckRow:
        """Store a check report; the newest few of a config are kept."""
        row = CheckRow(0, config_path, time.time(), ok, list(findings), list(lines))
        columns = encode_row(row, self.redactor)[1:]

        def insert(connection: sqlite3.Connection) -> CheckRow:
            cursor = connection.execute(
                "INSERT INTO checks (config_path, created_at, ok, findings, lines) VALUES (?, ?, ?, ?, ?)",
                columns,
            )
            connection.execute(
                "DELETE FROM checks WHERE config_path = ? AND check_id NOT IN "
                "(SELECT check_id FROM checks WHERE config_path = ? ORDER BY check_id DESC LIMIT ?)",
                (config_path, config_path, _CHECKS_KEPT),
            )
            found = connection.execute(
                "SELECT * FROM checks WHERE check_id = ?", (cursor.lastrowid,)
            ).fetchone()
            return decode_row(CheckRow, found)

        return self._writer.call(insert)


class _Beat:
    """A heartbeat on its way to the file."""

    def __init__(self, host_id: str, at: float) -> None:
        self._host_id = host_id
        self._at = at

    def prepare(self) -> None:
        """Nothing to encode."""

    def apply(self, connection: sqlite3.Connection) -> None:
        hosts.beat(connection, self._host_id, self._at)

    def after(self, older: Self) -> Self:
        return self


def _command(connection: sqlite3.Connection, command_id: int) -> CommandRow:
    row = connection.execute("SELECT * FROM commands WHERE command_id = ?", (command_id,)).fetchone()
    return decode_row(CommandRow, row)
