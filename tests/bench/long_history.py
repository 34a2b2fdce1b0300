"""A store with a long history, filled in bulk with rows as the engine writes them."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.store.codec import encode_row, pack_transcript, upsert_sql
from engine.store.redact import Redactor
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    RunState,
    StepRow,
    TranscriptRow,
)
from engine.store.store import Store
from tools.sample_store import run_row, step_metrics
from tools.sample_transcript import transcript_turns

GROUP_SIZE = 4
STEPS = 20
WORDS = 20_000
POOL = 400  # transcripts that are packed once; each attempt adds words of its own to one of them
OWN_WORDS = 120
LONG = {
    "1 MB, 100 turns": (100, 90),
    "10 MB, 1,000 turns": (1000, 90),
    "10 MB, 10 turns": (10, 9000),
    "a line of 3 MB": (1, 0),
}
"""Transcripts that are long: turns, and lines of some 115 characters in each; 0: one line alone."""


def add_long(project: Path) -> str:
    """Keep long transcripts in the newest run, each as an attempt of its group 0; returns the run's id."""
    line = "some words of a line that a program has printed, and some more of them 12345 678 until it ends here at last"
    with Store.open(project) as store:
        run = store.reader().runs(1)[0]
        recorder = store.recorder(run.run_id, files=False)
        for attempt, (turns, lines) in enumerate(LONG.values()):
            text = "\n".join(f"{number} {line}" for number in range(lines)) if lines else "x" * 3_000_000
            said = [
                {"role": ("user", "assistant", "tool")[place % 3], "content": text} for place in range(turns)
            ]
            recorder.transcript(TranscriptRow(run.run_id, 0, attempt, "long", 1.0, "solved", said))
        recorder.flush_blocking()
    return run.run_id


def build(project: Path, runs: int, attempts: int) -> None:
    """Fill a store with ``runs`` runs of ``attempts`` attempts each, by one transaction a run."""
    rng = random.Random(11)
    vocabulary = _vocabulary(rng)
    weights = [1 / (place + 1) for place in range(WORDS)]
    pool = [pack_transcript(_transcript("pool", 0, place, rng), Redactor()) for place in range(POOL)]
    with Store.open(project) as store:
        path = store.path
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    words = rng.choices(vocabulary, weights, k=1_000_000)
    for number in range(runs):
        connection.execute("BEGIN")
        _add_run(connection, project, number, attempts=attempts, pool=pool, words=words, rng=rng)
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _vocabulary(rng: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgk"
    return ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS)]


def _transcript(run_id: str, group_id: int, attempt: int, rng: random.Random) -> TranscriptRow:
    turns = transcript_turns(
        "Write the number of lines with ERROR in app.log into count.txt.", bool(attempt % 2), 3, rng
    )
    return TranscriptRow(run_id, group_id, attempt, "count-errors", float(attempt % 2), "solved", turns)


def _add_run(
    connection: sqlite3.Connection,
    project: Path,
    number: int,
    *,
    attempts: int,
    pool: Sequence[tuple[bytes, str]],
    words: Sequence[str],
    rng: random.Random,
) -> None:
    redactor = Redactor()
    created = time.time() - (number + 1) * 3600
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{number:04x}"
    state = (RunState.DONE, RunState.DONE, RunState.FAILED, RunState.STOPPED)[number % 4]
    run = run_row(
        run_id, f"agent_{number % 17}", state, project, created_at=created, started_at=created, config_toml=_CONFIG,
        ended_at=created + 1800, step=STEPS, max_steps=STEPS, reward_first=0.1, reward_last=0.8,
    )  # fmt: skip
    rows: list[Any] = [run]
    for step in range(1, STEPS + 1):
        at = created + step * 80
        metrics = step_metrics(0.1 + 0.03 * step, step, rng)
        rows.append(StepRow(run_id, step, "done", at, at + 70, step, metrics))
    groups = max(1, attempts // GROUP_SIZE)
    for group_id in range(groups):
        step = 1 + group_id * STEPS // groups
        rows.append(
            GroupRow(
                run_id, group_id, GroupState.TRAINED, f"task-{group_id % 6}", group_id % 6, step, 0, step, None,
                0.5, 0.5, 0.0, 1.0, GROUP_SIZE, 0, created, created + 60,
            )
        )  # fmt: skip
        for attempt in range(GROUP_SIZE):
            rows.append(
                AttemptRow(
                    run_id, group_id, attempt, AttemptState.DONE, 1, float(attempt % 2), 0.5, 3, 800, 90, 1, step,
                    step, "solved", False, None, created, created + 0.2, created + 3.3,
                    {"sampling": [created, created + 2.6, 1.9], "grading": [created + 2.7, created + 3.1, 0.4]},
                    {"termination_reason": "solved", "tool_calls": 2},
                )
            )  # fmt: skip
    # The reward of a step is a column that the recorder fills from its metrics.
    for row in rows:
        connection.execute(upsert_sql(type(row)), encode_row(row, redactor))
    connection.execute(
        "UPDATE steps SET reward_mean = json_extract(metrics, '$.\"reward/mean\"') WHERE run_id = ?",
        (run_id,),
    )
    for group_id in range(groups):
        for attempt in range(GROUP_SIZE):
            body, text = pool[rng.randrange(len(pool))]
            start = rng.randrange(len(words) - OWN_WORDS)
            own = " ".join(words[start : start + OWN_WORDS])
            if group_id == 0 and attempt == 0 and number % 100 == 7:
                own += " zzrare"
            if group_id == 1 and attempt == 1 and number % 100 == 9:
                own += " zzodd"
            cursor = connection.execute(
                "INSERT INTO transcripts (run_id, group_id, attempt, task_id, reward, ending, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run_id, group_id, attempt, f"task-{group_id % 6}", float(attempt % 2), "solved", body),
            )
            connection.execute(
                "INSERT INTO transcript_text (rowid, text) VALUES (?, ?)",
                (cursor.lastrowid, f"{text}\n{own}"),
            )


_CONFIG = 'recipe = "rl"\n' + "".join(
    f"# a comment of a config, as people write them, line {n}\n" for n in range(40)
)
