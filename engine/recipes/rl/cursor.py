"""Where a run stands between two steps, as its checkpoints keep it: enough to repeat no task and to skip none.

Steps train on groups in the order of their ids, so all groups before ``next_group`` are trained on or rejected, and none
from there on: those that had begun are sampled again, under the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.config.tasks import tasks_fingerprint
from engine.recipes.cursor import Identity, StoredCursor, identity_over, problem_with
from engine.store.resume import TakeUp
from engine.store.rows import CheckpointRow, RunRow

if TYPE_CHECKING:
    from engine.project import Project


def identity_of(project: Project) -> Identity:
    """What a run is over: its tasks. Reads their file: call it in a thread. Raises ConfigError."""
    return identity_over(project, tasks=tasks_fingerprint(project.rl.runtime.config.tasks))


@dataclass(frozen=True, slots=True)
class Cursor(StoredCursor):
    """The run's own counters after a finished step. Groups with ids from ``next_group`` on are not trained on yet.

    ``untrained``: those of them that were in flight or ready.
    """

    next_group: int
    consecutive_unusable: int
    unusable_groups: int
    reward_first: float | None
    reward_last: float | None
    reward_best: float | None
    untrained: list[int] = field(default_factory=list)


def take_up(run: RunRow, checkpoint: CheckpointRow | None, changes: dict[str, Any]) -> TakeUp:
    """How the store takes a run up: where its checkpoint says, or from the beginning where there is none."""
    if checkpoint is None:
        anew = {"reward_first": None, "reward_last": None, "unusable_groups": 0}
        return TakeUp(run.run_id, run.host_id, changes={**anew, **changes})
    cursor = Cursor.from_row(checkpoint.cursor)
    counters = {
        "reward_first": cursor.reward_first,
        "reward_last": cursor.reward_last,
        "unusable_groups": cursor.unusable_groups,
    }
    return TakeUp(run.run_id, run.host_id, checkpoint.step, cursor.next_group, {**counters, **changes})


def identity_problem(stored: dict[str, Any], project: Project) -> str | None:
    """See ``problem_with``. Reads the tasks file: call it in a thread. Raises ConfigError."""
    data_changed = (
        f"the tasks in {project.rl.runtime.config.tasks} have changed since its checkpoint, so tasks would be skipped or "
        "repeated; put the file back, or start a new run with [model] from_checkpoint"
    )
    return problem_with(Cursor, stored, project, identity_of(project), data_changed)
