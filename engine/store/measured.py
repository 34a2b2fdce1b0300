"""What earlier runs of a config measured: the figures that an estimate is made from."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass, replace
from typing import Protocol

#: Runs looked at, newest first: a config changes, and the latest figures say most.
RUNS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """Means over the newest runs of one config with at least one finished step.

    They are of what those steps took and of nothing else: attempts that no step waited for, as where a run was stopped
    or failed, and those of evaluations are in none of them. Tokens and calls are per attempt, times in seconds.
    """

    runs: int
    same_groups: bool  # False: their groups had another size, and how many are rejected depends on it
    steps: int  # of all those runs together
    batch: float  # attempts that a step would take if each group trained
    attempts_per_step: float  # more than the batch where groups are rejected
    attempts_variance: float  # of those, by how unevenly groups were rejected; 0.0 where none was
    calls_per_attempt: float
    prompt_tokens_per_attempt: float  # over all calls of an attempt
    sampled_tokens_per_attempt: float
    attempt_seconds: float  # from its start to its end, grading included, without what it waited for a place
    slot_seconds: (
        float  # of those, what it spent on sampling and acting: so long it held one of the run's slots
    )
    sandbox_seconds: float  # that a lease existed, per attempt; 0.0 without sandboxes
    update_seconds: float  # training and publishing, per step
    quickest_update: float  # of training alone: sampling begins anew while a publish is still being looked at

    def with_batch(self, batch: int) -> Measured:
        """The same of steps with another number of attempts: what a step takes grows with it."""
        larger = batch / self.batch
        return replace(
            self,
            batch=batch,
            attempts_per_step=self.attempts_per_step * larger,
            attempts_variance=self.attempts_variance * larger,
            update_seconds=self.update_seconds * larger,
            quickest_update=self.quickest_update * larger,
        )


class _Reading(Protocol):
    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]: ...


#: The trained groups of the runs, each with how many before it were rejected. Groups train in the order of their ids, so
#: the last one's id is how far the steps got.
_TRAINED = (
    "WITH trained AS (SELECT run_id, group_id, group_id - lag(group_id, 1, -1) OVER (PARTITION BY run_id ORDER BY "
    "group_id) - 1 AS again FROM groups WHERE run_id IN ({marks}) AND state = 'trained' AND step <= ?), "
    "reached AS (SELECT run_id, max(group_id) AS last FROM trained GROUP BY run_id) "
)


class MeasuredQueries:
    """Part of StoreReader."""

    def measured(
        self: _Reading, config_path: str, *, base_model: str, scope: str, group_size: int, max_steps: int
    ) -> Measured | None:
        """What the newest runs of this config with that model and scope measured, in their first ``max_steps`` steps.

        Runs with groups of ``group_size``, where there are any. None before one has finished a step. Raises StoreError.
        """
        with self._reading() as connection:
            found = connection.execute(
                "SELECT run_id, group_size = ? FROM runs WHERE config_path = ? AND base_model = ? AND scope = ? "
                "AND step > 0 ORDER BY group_size = ? DESC, created_at DESC LIMIT ?",
                (group_size, config_path, base_model, scope, group_size, RUNS),
            ).fetchall()
            if not found:
                return None
            same_groups = bool(found[0][1])
            runs = [run_id for run_id, same in found if bool(same) is same_groups]
            marks = ", ".join("?" * len(runs))
            trained, chosen = _TRAINED.format(marks=marks), (*runs, max_steps)
            steps, batch, update, quickest = _steps(connection, marks, chosen)
            attempts, calls, prompts, sampled, seconds, in_slot = connection.execute(
                f"{trained} SELECT count(*), avg(a.turns), avg(a.prompt_tokens), avg(a.sampled_tokens), "
                "avg(CASE WHEN a.ended_at > a.started_at THEN a.ended_at - a.started_at "
                "- coalesce(json_extract(a.timeline, '$.queued[2]'), 0.0) END), "
                "avg(coalesce(json_extract(a.timeline, '$.sampling[2]'), 0.0) + "
                "coalesce(json_extract(a.timeline, '$.acting[2]'), 0.0)) "
                "FROM reached JOIN attempts a USING (run_id) WHERE a.group_id BETWEEN 0 AND reached.last",
                chosen,
            ).fetchone()
            # Each of these counts is a geometric one: with r rejected, r (r + 1) / 2 is unbiased for its variance.
            variance = connection.execute(
                f"{trained} SELECT sum(again * (again + 1) / 2.0 * runs.group_size * runs.group_size) "
                "FROM trained JOIN runs USING (run_id)",
                chosen,
            ).fetchone()[0]
            leased = connection.execute(
                f"{trained} SELECT sum(released_at - coalesce(active_at, created_at)) FROM reached "
                "JOIN leases USING (run_id) WHERE leases.group_id BETWEEN 0 AND reached.last AND released_at IS NOT NULL",
                chosen,
            ).fetchone()[0]
        if not steps or not attempts:
            return None
        return Measured(
            runs=len(runs),
            same_groups=same_groups,
            steps=steps,
            batch=batch,
            attempts_per_step=attempts / steps,
            attempts_variance=(variance or 0.0) / steps,
            calls_per_attempt=calls or 0.0,
            prompt_tokens_per_attempt=prompts or 0.0,
            sampled_tokens_per_attempt=sampled or 0.0,
            attempt_seconds=seconds or 0.0,
            slot_seconds=in_slot or 0.0,
            sandbox_seconds=(leased or 0.0) / attempts,
            update_seconds=update,
            quickest_update=quickest,
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


def _steps(
    connection: sqlite3.Connection, marks: str, chosen: tuple[object, ...]
) -> tuple[int, float, float, float]:
    """How many steps the runs finished, their mean batch in attempts, the mean seconds of an update, and of training
    alone the fewest."""
    rows = connection.execute(
        "SELECT runs.group_size * runs.groups_per_step, steps.metrics FROM steps JOIN runs USING (run_id) "
        f"WHERE run_id IN ({marks}) AND steps.state = 'done' AND steps.step <= ?",
        chosen,
    ).fetchall()
    if not rows:
        return 0, 0.0, 0.0, 0.0
    metrics = [json.loads(row[1]) for row in rows]
    training = [float(each.get("time/train", 0.0)) for each in metrics]
    publishing = [float(each.get("time/publish", 0.0)) for each in metrics]
    batch, update = sum(row[0] for row in rows) / len(rows), (sum(training) + sum(publishing)) / len(rows)
    return len(rows), batch, update, min(training)
