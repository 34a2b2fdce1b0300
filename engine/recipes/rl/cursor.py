"""Where a run stands between two steps, as its checkpoints keep it: enough to repeat no task and to skip none.

Steps train on groups in the order of their ids, so all groups before ``next_group`` are trained on or rejected, and none
from there on: those that had begun are sampled again, under the same ids.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from engine.config.local_models import model_fingerprint
from engine.config.tasks import tasks_fingerprint
from engine.store.resume import TakeUp
from engine.store.rows import CheckpointRow, RunRow

if TYPE_CHECKING:
    from engine.project import Project


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """What a curve is over. ``tasks``: a fingerprint of the tasks file; ``model``: of a local model's directory."""

    tasks: str
    model: str | None

    @classmethod
    def of(cls, project: Project) -> DataIdentity:
        """Reads the tasks file: call it in a thread. Raises ConfigError."""
        directory = project.model_dir
        return cls(
            tasks_fingerprint(project.rl.runtime.config.tasks),
            None if directory is None else model_fingerprint(directory),
        )


@dataclass(frozen=True, slots=True)
class Cursor:
    """The run's own counters after a finished step. Groups with ids from ``next_group`` on are not trained on yet.

    ``untrained``: those of them that were in flight or ready.
    """

    identity: DataIdentity
    next_group: int
    consecutive_unusable: int
    unusable_groups: int
    reward_first: float | None
    reward_last: float | None
    reward_best: float | None
    untrained: list[int] = field(default_factory=list)

    def to_row(self) -> dict[str, Any]:
        """As a checkpoint's row keeps it."""
        return asdict(self)

    @classmethod
    def from_row(cls, stored: dict[str, Any]) -> Cursor:
        """Raises KeyError or TypeError where it was written by something else."""
        return cls(**{**stored, "identity": DataIdentity(**stored["identity"])})


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
    """Why a run must not go on from a checkpoint with this cursor: one sentence, or None.

    Reads the tasks file: call it in a thread. Raises ConfigError.
    """
    try:
        before = Cursor.from_row(stored).identity
    except (KeyError, TypeError):
        return (
            "its checkpoint was written by another version of loops-tui and does not say where the run stood"
        )
    now = DataIdentity.of(project)
    tasks = project.rl.runtime.config.tasks
    if now.tasks != before.tasks:
        return (
            f"the tasks in {tasks} have changed since its checkpoint, so tasks would be skipped or repeated; put the "
            "file back, or start a new run with [model] from_checkpoint"
        )
    if now.model != before.model:
        return (
            f"the model in {project.model_dir} has changed since its checkpoint, so the saved adapter no longer fits "
            "it; put the model back, or start a new run"
        )
    return None
