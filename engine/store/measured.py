"""What earlier runs of a config measured: the figures that an estimate is made from."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from typing import Protocol

#: Runs looked at, newest first: a config changes, and the latest figures say most.
RUNS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over the newest runs of one config with at least one finished step.

    Tokens and calls are per attempt, of all attempts that were started in finished steps; times are in seconds.
    """

    runs: int
    steps: int
    attempts_per_step: float  # more than the batch where groups are rejected
    calls_per_attempt: float
    prompt_tokens_per_attempt: float  # over all calls of an attempt
    sampled_tokens_per_attempt: float
    attempt_seconds: float  # from its start to its end, grading included
    slot_seconds: (
        float  # of those, what it spent on sampling and acting: so long it held one of the run's slots
    )
    sandbox_seconds: float  # that a lease existed, per attempt; 0.0 without sandboxes
    update_seconds: float  # training and publishing, per step


class _Reading(Protocol):
    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]: ...


class MeasuredQueries:
    """Part of StoreReader."""

    def measured(self: _Reading, config_path: str) -> Measured | None:
        """What the newest runs of this config measured; None before one has finished a step. Raises StoreError."""
        with self._reading() as connection:
            runs = [
                row[0]
                for row in connection.execute(
                    "SELECT run_id FROM runs WHERE config_path = ? AND step > 0 ORDER BY created_at DESC LIMIT ?",
                    (config_path, RUNS),
                )
            ]
            if not runs:
                return None
            marks = ", ".join("?" * len(runs))
            steps, update = _steps(connection, runs, marks)
            attempts, calls, prompts, sampled, seconds, in_slot = connection.execute(
                "SELECT count(*), avg(a.turns), avg(a.prompt_tokens), avg(a.sampled_tokens), "
                "avg(CASE WHEN a.ended_at > a.started_at THEN a.ended_at - a.started_at END), "
                "avg(coalesce(json_extract(a.timeline, '$.sampling[2]'), 0.0) + "
                "coalesce(json_extract(a.timeline, '$.acting[2]'), 0.0)) "
                "FROM attempts a JOIN groups g USING (run_id, group_id) "
                f"WHERE run_id IN ({marks}) AND g.eval_id IS NULL AND a.ended_at IS NOT NULL "
                "AND a.state != 'cancelled'",
                runs,
            ).fetchone()
            leased = connection.execute(
                "SELECT sum(released_at - coalesce(active_at, created_at)) FROM leases "
                f"WHERE run_id IN ({marks}) AND released_at IS NOT NULL",
                runs,
            ).fetchone()[0]
        if not steps or not attempts:
            return None
        return Measured(
            runs=len(runs),
            steps=steps,
            attempts_per_step=attempts / steps,
            calls_per_attempt=calls or 0.0,
            prompt_tokens_per_attempt=prompts or 0.0,
            sampled_tokens_per_attempt=sampled or 0.0,
            attempt_seconds=seconds or 0.0,
            slot_seconds=in_slot or 0.0,
            sandbox_seconds=(leased or 0.0) / attempts,
            update_seconds=update,
        )

    def sandbox_time(self: _Reading, run_id: str, now: float) -> tuple[float, float]:
        """Hours that a run's sandboxes have existed until ``now`` (Unix seconds), and those hours times their GB."""
        with self._reading() as connection:
            hours, gb_hours = connection.execute(
                "SELECT sum(seconds) / 3600.0, sum(seconds * coalesce(memory_mb, 0)) / 3600.0 / 1024.0 FROM "
                "(SELECT memory_mb, max(0.0, coalesce(released_at, ?) - coalesce(active_at, created_at)) AS seconds "
                "FROM leases WHERE run_id = ? AND (active_at IS NOT NULL OR state != 'intended'))",
                (now, run_id),
            ).fetchone()
        return hours or 0.0, gb_hours or 0.0


def _steps(connection: sqlite3.Connection, runs: list[str], marks: str) -> tuple[int, float]:
    """How many steps the runs finished, and the mean seconds of an update in them."""
    rows = connection.execute(
        f"SELECT metrics FROM steps WHERE run_id IN ({marks}) AND state = 'done'", runs
    ).fetchall()
    updates = [
        sum(float(metrics.get(name, 0.0)) for name in ("time/train", "time/publish"))
        for metrics in (json.loads(row[0]) for row in rows)
    ]
    return len(rows), sum(updates) / len(updates) if updates else 0.0
