"""The state directory: everything that survives a restart of the server.

Layout::

    server.lock              held while a server uses the directory
    ending                   there once that server has decided to end: nobody should begin to use it any more
    server.json              sessions, samplers, the user config
    server.log               the process's log
    runs/<run>/run.json      the run, its publish counter, its checkpoint index
    runs/<run>/checkpoints/<id>/   one immutable directory per checkpoint

What survives: sessions; samplers; runs with their status and publish counter; every named checkpoint that has not
expired; the live policy of each run; and the state of each trainer (adapter, optimizer, step) **as of its last
publish, save, load or reset**. What does not: gradients accumulated since the last ``optim_step``, optimizer steps
taken after the last publish or save, results of operations, and policy versions that were neither the live one nor
kept under a name.

A checkpoint is written beside its final name, renamed, and only then entered in ``run.json``, which is itself
replaced in one step. A kill at any point therefore leaves either the old index or the new one, and at worst a
directory that no index names, which the next start removes. Records and the checkpoints of ``save_state`` are flushed
to the disk; published weights and the state saved with them are not, because that would cost more than a small
model's whole step: should the *machine* go down within seconds of a publish, resume from the last ``save_state``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from engine.local_loops.atomic_files import read_json, remove_leftovers, write_json
from engine.local_loops.records import CheckpointRecord, RunRecord, SamplerRecord

log = logging.getLogger(__name__)

FORMAT = 1


class StateError(Exception):
    """A state directory that cannot be used, in one sentence."""


class StateStore:
    """The records of one state directory; safe to use from the loop and from the other threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock = threading.RLock()
        self.sessions: dict[str, str] = {}
        self.samplers: dict[str, SamplerRecord] = {}
        self.runs: dict[str, RunRecord] = {}
        self.user_config: dict[str, Any] = {}
        self._lock_file: IO[str] | None = None
        #: Checkpoint directories that exist or are being written, but are in no index yet.
        self._arriving: set[str] = set()

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    @property
    def _ending(self) -> Path:
        return self.directory / "ending"

    def say_ending(self) -> None:
        """Tell other processes that this server ends, before it stops answering. May be called from any thread."""
        try:
            self._ending.touch()
        except OSError as error:
            log.warning("%s could not be written: %s", self._ending, error)

    def open(self) -> None:
        """Lock the directory and read what it holds."""
        try:
            (self.directory / "runs").mkdir(parents=True, exist_ok=True)
            self._lock_file = (self.directory / "server.lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise StateError(f"state directory {self.directory} is not writable: {error.strerror}") from error
        self._take_lock(self._lock_file)
        self._ending.unlink(missing_ok=True)
        try:
            self._read()
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.close()
            raise StateError(f"state directory {self.directory} cannot be read: {error}") from error

    def _take_lock(self, handle: IO[str]) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.seek(0)
            holder = handle.read().strip()
            handle.close()
            by = f" (process {holder})" if holder else ""
            raise StateError(f"state directory {self.directory} is in use by another server{by}") from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()

    def _read(self) -> None:
        remove_leftovers(self.directory)
        path = self.directory / "server.json"
        if path.is_file():
            raw = read_json(path)
            if raw.get("format") != FORMAT:
                raise ValueError(f"unknown format {raw.get('format')!r} in server.json")
            self.sessions = dict(raw["sessions"])
            self.samplers = {item["id"]: SamplerRecord(**item) for item in raw["samplers"]}
            self.user_config = dict(raw["user_config"])
        for run_dir in sorted((self.directory / "runs").iterdir()):
            remove_leftovers(run_dir)
            remove_leftovers(run_dir / "checkpoints")
            if not (run_dir / "run.json").is_file():
                shutil.rmtree(run_dir, ignore_errors=True)  # created, but never entered
                continue
            run = RunRecord.from_json(read_json(run_dir / "run.json"))
            self.runs[run.id] = run
            self._remove_unreferenced(run)

    def close(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    # -- server-wide records -------------------------------------------------------------------------------

    def _write_server(self) -> None:
        write_json(
            self.directory / "server.json",
            {
                "format": FORMAT,
                "sessions": self.sessions,
                "samplers": [asdict(sampler) for sampler in self.samplers.values()],
                "user_config": self.user_config,
            },
        )

    def add_session(self, session_id: str, created_at: str) -> None:
        with self.lock:
            self.sessions[session_id] = created_at
            self._write_server()

    def add_sampler(self, sampler: SamplerRecord) -> None:
        with self.lock:
            self.samplers[sampler.id] = sampler
            self._write_server()

    def set_user_config(self, config: dict[str, Any]) -> None:
        with self.lock:
            self.user_config = config
            self._write_server()

    # -- runs ----------------------------------------------------------------------------------------------

    def run_directory(self, run_id: str) -> Path:
        return self.directory / "runs" / run_id

    def checkpoint_directory(self, record: CheckpointRecord) -> Path:
        return self.run_directory(record.run_id) / "checkpoints" / record.id

    def save_run(self, run: RunRecord) -> None:
        """Write a run's record, then drop the checkpoint directories that nothing points to any more."""
        with self.lock:
            directory = self.run_directory(run.id)
            directory.mkdir(parents=True, exist_ok=True)
            write_json(directory / "run.json", asdict(run))
            self.runs[run.id] = run
            self._remove_unreferenced(run)

    def _remove_unreferenced(self, run: RunRecord) -> None:
        directory = self.run_directory(run.id) / "checkpoints"
        if not directory.is_dir():
            return
        kept = run.referenced() | self._arriving
        for entry in directory.iterdir():
            if entry.name not in kept and not entry.name.startswith("."):
                shutil.rmtree(entry, ignore_errors=True)

    def announce(self, checkpoint_id: str) -> None:
        """Protect a checkpoint directory from removal until its index names it."""
        with self.lock:
            self._arriving.add(checkpoint_id)

    def withdraw(self, checkpoint_ids: Iterable[str]) -> None:
        with self.lock:
            self._arriving.difference_update(checkpoint_ids)

    def drop_gone(self, run: RunRecord) -> None:
        """Forget checkpoints whose time to live is over, and those whose directory somebody has removed."""
        with self.lock:
            there = [
                record
                for record in run.checkpoints
                if not record.expired and self.checkpoint_directory(record).is_dir()
            ]
            if len(there) != len(run.checkpoints):
                run.checkpoints = there
                self.save_run(run)

    def find_checkpoint(self, checkpoint_id: str) -> CheckpointRecord | None:
        with self.lock:
            for run in self.runs.values():
                for record in run.checkpoints:
                    if record.id == checkpoint_id and not record.expired:
                        return record
        return None
