"""The tables of the store, and how an older store becomes a newer one.

A migration is a tuple of statements and is never edited once it was released: a change is a new migration.
``user_version`` counts the migrations that a file has seen.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from engine.store.errors import LOCK_WAIT_SECONDS, StoreError, explain

_FIRST: tuple[str, ...] = (
    """CREATE TABLE hosts (
        host_id TEXT PRIMARY KEY, pid INTEGER NOT NULL, pid_started REAL NOT NULL, hostname TEXT NOT NULL,
        kind TEXT NOT NULL, started_at REAL NOT NULL, heartbeat_at REAL NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, name TEXT NOT NULL, recipe TEXT NOT NULL, state TEXT NOT NULL,
        created_at REAL NOT NULL, config_path TEXT NOT NULL, config_toml TEXT NOT NULL, run_dir TEXT NOT NULL,
        base_model TEXT NOT NULL, max_steps INTEGER NOT NULL, step INTEGER NOT NULL, phase TEXT NOT NULL,
        mode TEXT NOT NULL, group_size INTEGER NOT NULL, groups_per_step INTEGER NOT NULL, loops_run_id TEXT,
        loops_url TEXT, scope TEXT NOT NULL, policy_version INTEGER, started_at REAL, ended_at REAL,
        reward_first REAL, reward_last REAL, unusable_groups INTEGER NOT NULL, error TEXT, host_id TEXT,
        info TEXT NOT NULL
    )""",
    "CREATE INDEX runs_by_state ON runs(state)",
    "CREATE INDEX runs_by_time ON runs(created_at)",
    """CREATE TABLE steps (
        run_id TEXT NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL,
        policy_version INTEGER, metrics TEXT NOT NULL, reward_mean REAL, PRIMARY KEY (run_id, step)
    ) WITHOUT ROWID""",
    """CREATE TABLE groups (
        run_id TEXT NOT NULL, group_id INTEGER NOT NULL, state TEXT NOT NULL, task_id TEXT NOT NULL,
        task_index INTEGER NOT NULL, step INTEGER, epoch INTEGER NOT NULL, policy_version INTEGER, reason TEXT,
        reward_mean REAL, reward_std REAL, reward_min REAL, reward_max REAL, attempts_done INTEGER NOT NULL,
        attempts_lost INTEGER NOT NULL, started_at REAL, ended_at REAL, PRIMARY KEY (run_id, group_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX groups_by_step ON groups(run_id, step)",
    "CREATE INDEX groups_by_state ON groups(run_id, state)",
    """CREATE TABLE attempts (
        run_id TEXT NOT NULL, group_id INTEGER NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL,
        tries INTEGER NOT NULL, reward REAL, advantage REAL, turns INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
        sampled_tokens INTEGER NOT NULL, segments INTEGER NOT NULL, version_min INTEGER, version_max INTEGER,
        ending TEXT, timed_out INTEGER NOT NULL, error TEXT, queued_at REAL, started_at REAL, ended_at REAL,
        timeline TEXT NOT NULL, metadata TEXT NOT NULL, PRIMARY KEY (run_id, group_id, attempt)
    ) WITHOUT ROWID""",
    # The body is zlib-compressed JSON: token ids and logprobs shrink to a quarter of their text.
    """CREATE TABLE transcripts (
        transcript_id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, group_id INTEGER NOT NULL, attempt INTEGER NOT NULL,
        task_id TEXT NOT NULL, reward REAL, ending TEXT, body BLOB NOT NULL, UNIQUE (run_id, group_id, attempt)
    )""",
    "CREATE VIRTUAL TABLE transcript_text USING fts5(text)",
    """CREATE TABLE checks (
        check_id INTEGER PRIMARY KEY, config_path TEXT NOT NULL, created_at REAL NOT NULL, ok INTEGER NOT NULL,
        findings TEXT NOT NULL, lines TEXT NOT NULL
    )""",
    "CREATE INDEX checks_by_config ON checks(config_path, check_id)",
    """CREATE TABLE commands (
        command_id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL,
        created_at REAL NOT NULL, args TEXT NOT NULL, answer TEXT, answered_at REAL
    )""",
    "CREATE INDEX commands_by_run ON commands(run_id, command_id)",
    "CREATE INDEX commands_by_state ON commands(state)",
    """CREATE TABLE log (
        log_id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, at REAL NOT NULL, level TEXT NOT NULL,
        source TEXT NOT NULL, text TEXT NOT NULL
    )""",
    "CREATE INDEX log_by_run ON log(run_id, log_id)",
)

_LEASES: tuple[str, ...] = (
    """CREATE TABLE leases (
        name TEXT PRIMARY KEY, provider TEXT NOT NULL, isolation TEXT NOT NULL, run_id TEXT, group_id INTEGER,
        attempt INTEGER, host_id TEXT, state TEXT NOT NULL, created_at REAL NOT NULL, active_at REAL,
        released_at REAL, ttl_seconds REAL, memory_mb INTEGER, tries INTEGER NOT NULL, last_error TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX leases_by_run ON leases(run_id, created_at)",
    "CREATE INDEX leases_open ON leases(state) WHERE state != 'released'",
)

_CHECKPOINTS: tuple[str, ...] = (
    "ALTER TABLE runs ADD COLUMN loops_state TEXT",
    "ALTER TABLE runs ADD COLUMN loops_since REAL",
    "ALTER TABLE runs ADD COLUMN loops_until REAL",
    "ALTER TABLE runs ADD COLUMN spend TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE groups ADD COLUMN eval_id TEXT",
    "ALTER TABLE leases ADD COLUMN price_per_gb_hour REAL",
    """CREATE TABLE checkpoints (
        run_id TEXT NOT NULL, name TEXT NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
        created_at REAL NOT NULL, saved_at REAL, policy_version INTEGER, loops_run_id TEXT, trainer_path TEXT,
        sampler_path TEXT, size_bytes INTEGER, reward_mean REAL, metrics TEXT NOT NULL, cursor TEXT NOT NULL,
        error TEXT, PRIMARY KEY (run_id, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE evals (
        run_id TEXT NOT NULL, eval_id TEXT NOT NULL, target TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
        created_at REAL NOT NULL, ended_at REAL, step INTEGER, checkpoint TEXT, tasks INTEGER NOT NULL,
        attempts INTEGER NOT NULL, graded INTEGER NOT NULL, lost INTEGER NOT NULL, mean REAL, low REAL, high REAL,
        pass_at TEXT NOT NULL, per_task TEXT NOT NULL, metrics TEXT NOT NULL, sampling TEXT NOT NULL, error TEXT,
        PRIMARY KEY (run_id, eval_id)
    ) WITHOUT ROWID""",
)

_PACE: tuple[str, ...] = (
    """CREATE TABLE pace (
        provider TEXT PRIMARY KEY, max_live INTEGER NOT NULL, creates_per_second REAL NOT NULL, next_at REAL NOT NULL,
        changed_at REAL NOT NULL, why TEXT
    ) WITHOUT ROWID""",
)

_EVAL_HOSTS: tuple[str, ...] = (
    "ALTER TABLE evals ADD COLUMN host_id TEXT",
    "CREATE INDEX groups_by_eval ON groups(run_id, eval_id) WHERE eval_id IS NOT NULL",
)

_STOPPED: tuple[str, ...] = ("ALTER TABLE runs ADD COLUMN stopped_seconds REAL NOT NULL DEFAULT 0",)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _LEASES, _CHECKPOINTS, _PACE, _EVAL_HOSTS, _STOPPED)

STORE_DIRECTORY = ".loops"
STORE_FILE = "loops.db"


def store_path(project_dir: Path) -> Path:
    """Where the store of a project directory lies."""
    return project_dir / STORE_DIRECTORY / STORE_FILE


def prepare_directory(project_dir: Path) -> Path:
    """Make ``<project_dir>/.loops`` (0700) if it is missing and return it.

    Raises StoreError where the project directory is missing or cannot be written.
    """
    directory = project_dir / STORE_DIRECTORY
    if not project_dir.is_dir():
        raise StoreError(f"store: {project_dir} is no directory")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        ignore = directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise explain(error, directory) from error
    return directory


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode (transactions are begun by hand). Raises sqlite3.Error."""
    connection = sqlite3.connect(
        path, timeout=LOCK_WAIT_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    if read_only:
        connection.execute("PRAGMA query_only = ON")
        # Nor at its end: the last connection to close would move what a killed process left in the log into the file.
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    return connection


def open_database(path: Path) -> sqlite3.Connection:
    """Create or open the store's file, private to its user, in WAL mode and migrated.

    Raises StoreError where the file is newer than this program, damaged, locked or not writable.
    """
    try:
        # The file is made private before sqlite writes a byte; -wal and -shm take over its mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise explain(error, path) from error
    try:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        migrate(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL; two processes that open a new file at once may meet here, and sqlite does not wait by itself."""
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: tuple[tuple[str, ...], ...] = MIGRATIONS
) -> None:
    """Bring the file to the newest schema in one transaction. Raises StoreError where the file is newer still."""
    if _version(connection) == len(migrations):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # again, under the lock: another process may have migrated meanwhile
        if version > len(migrations):
            raise StoreError(
                f"store: {path} was written by a newer loops-tui (its format is {version}, this program knows "
                f"{len(migrations)}): update loops-tui, or use another project directory"
            )
        for number in range(version, len(migrations)):
            for statement in migrations[number]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def require_current(path: Path) -> None:
    """For those who may not migrate: raises StoreError where the file has another format than this program's."""
    connection = connect(path, read_only=True)
    try:
        version = _version(connection)
    except sqlite3.Error as error:
        raise explain(error, path) from error
    finally:
        connection.close()
    if version != len(MIGRATIONS):
        raise StoreError(
            f"store: {path} has format {version}, this program reads {len(MIGRATIONS)}: "
            + ("update loops-tui" if version > len(MIGRATIONS) else "it must be opened for writing once")
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
