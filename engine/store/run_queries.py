"""What a view of one run asks of the store: the step in hand, its groups, rewards by value, evaluations' groups."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The step in hand, as its rows say. Training groups have ids from 0 on, those of an evaluation negative ones."""

    # Attempts of groups in flight, by state.
    training: Mapping[AttemptState, int] = field(default_factory=dict)
    evaluating: Mapping[AttemptState, int] = field(default_factory=dict)
    ready_groups: int = 0  # graded, waiting for their batch
    ready_attempts: int = 0
    ready_at: float | None = None  # when the last of them was
    oldest: AttemptRow | None = None  # the attempt in flight that began first


class _Reading(Protocol):
    def _rows[RowT](self, row_type: type[RowT], sql: str, values: Sequence[object]) -> list[RowT]: ...
    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]: ...


class RunQueries:
    """Questions about one run (part of StoreReader)."""

    def progress(self: _Reading, run_id: str) -> StepProgress:
        """Where the attempts of the step in hand are, those of later steps left out, and of an evaluation under way."""
        of_step = "coalesce(groups.step, 0) <= (SELECT step + 1 FROM runs WHERE runs.run_id = groups.run_id)"
        training: dict[AttemptState, int] = {}
        evaluating: dict[AttemptState, int] = {}
        with self._reading() as connection:
            for evaluation, state, number in connection.execute(
                "SELECT groups.group_id < 0, attempts.state, count(*) FROM groups "
                "JOIN attempts USING (run_id, group_id) WHERE groups.run_id = ? AND groups.state = ? "
                f"AND (groups.group_id < 0 OR {of_step}) "
                "GROUP BY groups.group_id < 0, attempts.state",
                (run_id, str(GroupState.RUNNING)),
            ):
                (evaluating if evaluation else training)[AttemptState(state)] = number
            groups, attempts, at = connection.execute(
                "SELECT count(*), sum(attempts_done + attempts_lost), max(ended_at) FROM groups "
                f"WHERE run_id = ? AND state = ? AND group_id >= 0 AND {of_step}",
                (run_id, str(GroupState.READY)),
            ).fetchone()
        oldest = self._rows(
            AttemptRow,
            "SELECT attempts.* FROM groups JOIN attempts USING (run_id, group_id) WHERE groups.run_id = ? "
            "AND groups.state = ? AND attempts.ended_at IS NULL AND attempts.started_at IS NOT NULL "
            f"AND (groups.group_id < 0 OR {of_step}) "
            "ORDER BY attempts.started_at LIMIT 1",
            [run_id, str(GroupState.RUNNING)],
        )
        return StepProgress(training, evaluating, groups, attempts or 0, at, oldest[0] if oldest else None)

    def training_groups(
        self: _Reading, run_id: str, limit: int = 400, *, step: int | None = None
    ) -> list[GroupRow]:
        """The newest groups that are or were to be trained on, in the order in which they began."""
        where, values = ("", [run_id]) if step is None else ("AND step = ?", [run_id, step])
        rows = self._rows(
            GroupRow,
            f"SELECT * FROM groups WHERE run_id = ? AND group_id >= 0 {where} ORDER BY group_id DESC LIMIT ?",
            [*values, limit],
        )
        return rows[::-1]

    def eval_groups(self: _Reading, run_id: str, eval_id: str) -> list[GroupRow]:
        """The groups of one evaluation, in the order in which they began."""
        return self._rows(
            GroupRow,
            "SELECT * FROM groups WHERE run_id = ? AND group_id < 0 AND eval_id = ? ORDER BY group_id DESC",
            [run_id, eval_id],
        )

    def newest_attempts(self: _Reading, run_id: str, limit: int) -> list[AttemptRow]:
        """Attempts of training, those of the newest group first."""
        return self._rows(
            AttemptRow,
            "SELECT * FROM attempts WHERE run_id = ? AND group_id >= 0 "
            "ORDER BY group_id DESC, attempt DESC LIMIT ?",
            [run_id, limit],
        )

    def reward_counts(self: _Reading, run_id: str, *, step: int | None = None) -> dict[float, int]:
        """How many attempts of training earned which reward, in one step or in all of them."""
        where, values = _of_step(step)
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT reward, count(*) FROM attempts WHERE run_id = ? AND reward IS NOT NULL "
                f"{where} GROUP BY reward",
                (run_id, *values),
            )
            return {float(reward): number for reward, number in rows}

    def attempts_between(
        self: _Reading, run_id: str, low: float, high: float, *, step: int | None = None, limit: int = 500
    ) -> list[AttemptRow]:
        """Attempts of training whose reward lies in ``low``..``high`` (both included), the newest ``limit`` of them."""
        where, values = _of_step(step)
        return self._rows(
            AttemptRow,
            f"SELECT * FROM attempts WHERE run_id = ? AND reward BETWEEN ? AND ? {where} "
            "ORDER BY group_id DESC, attempt LIMIT ?",
            [run_id, low, high, *values, limit],
        )


def _of_step(step: int | None) -> tuple[str, list[object]]:
    """The part of a query that keeps to the training groups of one step, or of all."""
    if step is None:
        return "AND group_id >= 0", []
    return (
        "AND group_id IN (SELECT group_id FROM groups WHERE groups.run_id = attempts.run_id "
        "AND step = ? AND group_id >= 0)",
        [step],
    )
