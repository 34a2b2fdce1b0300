"""What the Checkpoints screen reads: every checkpoint with its run and its evaluations, and what still bills."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.store.history_queries import still_bills
from engine.store.rows import CheckpointRow, CheckpointState, EvalRow, RunRow

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

LIMIT = 2000


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A checkpoint as the list shows it. ``evals`` are those of its weights, the newest first."""

    row: CheckpointRow
    run: RunRow | None
    evals: Sequence[EvalRow]
    base: EvalRow | None  # the base model's, to compare with
    last: bool  # whether a resume of its run goes on from it
    has_eval: bool  # whether the run's config names held-out tasks
    now: float

    @property
    def saved(self) -> bool:
        return self.row.state is CheckpointState.SAVED

    @property
    def recipe(self) -> str:
        return "rl" if self.run is None else self.run.recipe

    @property
    def can_be_tried(self) -> bool:
        """Whether a sampler can be started of it."""
        return self.run is not None and self.row.sampler_path is not None

    @property
    def key(self) -> str:
        return f"{self.row.run_id}/{self.row.name}"

    @property
    def measured(self) -> EvalRow | None:
        """The newest evaluation with a figure."""
        return next((row for row in self.evals if row.mean is not None), None)

    def matches(self, needle: str) -> bool:
        row, run = self.row, self.run
        hay = (
            f"{row.name} {row.run_id} {row.state} {row.why} {run.name if run is not None else ''}".casefold()
        )
        return all(word in hay for word in needle.casefold().split())


@dataclass(frozen=True, slots=True)
class CheckpointsView:
    """Everything on the screen; ``live`` are the runs that can be asked to save."""

    entries: list[CheckpointEntry]
    billing: list[RunRow]
    live: list[RunRow]
    now: float


class CheckpointsWatch:
    """Reads the screen. All calls come from the reading thread."""

    def __init__(self) -> None:
        self._evaluates: dict[str, bool] = {}

    def read(self, reader: StoreReader) -> CheckpointsView:
        from engine.store.rows import RunState

        now = time.time()
        rows = reader.checkpoints(limit=LIMIT)
        billing = reader.billing_runs()
        live = reader.runs(states=[state for state in RunState if not state.final])
        runs = {run.run_id: run for run in (*billing, *live)}
        runs |= reader.runs_by_id({row.run_id for row in rows} - set(runs))
        last = reader.last_checkpoints()
        evals: dict[str, list[EvalRow]] = {}
        for row in reader.evals(limit=LIMIT):
            evals.setdefault(row.run_id, []).append(row)
        entries = [
            CheckpointEntry(
                row,
                runs.get(row.run_id),
                [one for one in evals.get(row.run_id, ()) if _is_of(one, row)],
                next(
                    (
                        one
                        for one in evals.get(row.run_id, ())
                        if one.target == "base" and one.mean is not None
                    ),
                    None,
                ),
                row.run_id in last and last[row.run_id].name == row.name,
                self._has_eval(runs.get(row.run_id)),
                now,
            )
            for row in rows
        ]
        return CheckpointsView(entries, [run for run in billing if still_bills(run)], live, now)

    def _has_eval(self, run: RunRow | None) -> bool:
        if run is None:
            return False
        known = self._evaluates.get(run.run_id)
        if known is None:
            known = self._evaluates[run.run_id] = _names_tasks(run.config_toml)
        return known


def _is_of(one: EvalRow, row: CheckpointRow) -> bool:
    """Whether an evaluation was of a checkpoint's weights: by its name, or of the live run after the same step."""
    return one.checkpoint == row.name or (one.target == "live" and one.step == row.step)


def _names_tasks(config_toml: str) -> bool:
    if "eval" not in config_toml:
        return False
    try:
        return "eval" in tomllib.loads(config_toml)
    except tomllib.TOMLDecodeError:
        return False
