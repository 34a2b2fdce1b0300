"""What the Compare screen reads of its two runs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config.comparing import Change, changes
from engine.store.rows import EvalRow, RunRow, StepRow

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

EVAL = "eval/mean"  # the means of evaluations, as a figure beside those of the steps
REWARD, LOSS = "reward/mean", "loss"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    run: RunRow
    steps: Sequence[StepRow]
    evals: Sequence[EvalRow]

    def points(self, metric: str) -> list[tuple[float, float]]:
        """(step, value), by step."""
        if metric == EVAL:
            done = [(row.step or 0, row.mean) for row in self.evals if row.mean is not None]
            return sorted((float(step), mean) for step, mean in done)
        return [(float(row.step), row.metrics[metric]) for row in self.steps if metric in row.metrics]


@dataclass(frozen=True, slots=True)
class CompareView:
    """Two runs and what differs in their configs (None where one of these is no TOML)."""

    left: Side
    right: Side
    changes: Sequence[Change] | None

    def metrics(self) -> list[str]:
        """What both have figures of, the reward first; where they share nothing, what either has."""
        names = [_names(side) for side in (self.left, self.right)]
        known = names[0] & names[1] or names[0] | names[1]
        first = [name for name in (REWARD, LOSS, EVAL) if name in known]
        return [*first, *sorted(known - set(first))]


def _names(side: Side) -> set[str]:
    names = {name for step in side.steps for name in step.metrics}
    return names | {EVAL} if any(row.mean is not None for row in side.evals) else names


def read_pair(reader: StoreReader, left: str, right: str) -> CompareView | None:
    """Both runs; None where one of them is gone from the store."""
    sides: list[Side] = []
    for run_id in (left, right):
        run = reader.get_run(run_id)
        if run is None:
            return None
        sides.append(Side(run, reader.steps(run_id), reader.evals(run_id)))
    return CompareView(sides[0], sides[1], _changes(sides[0].run, sides[1].run))


def _changes(left: RunRow, right: RunRow) -> list[Change] | None:
    try:
        return changes(tomllib.loads(left.config_toml), tomllib.loads(right.config_toml))
    except tomllib.TOMLDecodeError:
        return None
