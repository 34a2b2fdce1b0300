"""Where an SFT run stands between two steps: every sample is trained as often with a resume as without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.config.data_files import expand
from engine.recipes.cursor import Identity, StoredCursor, identity_over, problem_with
from engine.recipes.sft.prepared import content_fingerprint
from engine.store.resume import TakeUp
from engine.store.rows import CheckpointRow, RunRow

if TYPE_CHECKING:
    from engine.project import Project


def identity_of(project: Project) -> Identity:
    """What a run is over: its training files. Reads them: call it in a thread. Raises OSError."""
    return identity_over(project, train=content_fingerprint(expand(project.sft.data.train)))


@dataclass(frozen=True, slots=True)
class Cursor(StoredCursor):
    """``epoch`` (0-based) and ``place`` in its order are where the next batch begins.

    ``best`` is the lowest validation loss so far, ``worse`` how many validations came after it.
    """

    epoch: int
    place: int
    best: float | None
    worse: int
    loss_first: float | None
    loss_last: float | None


def take_up(run: RunRow, checkpoint: CheckpointRow | None, changes: dict[str, Any]) -> TakeUp:
    """How the store takes a run up: where its checkpoint says, or from the beginning where there is none."""
    if checkpoint is None:
        return TakeUp(run.run_id, run.host_id, changes={**changes, "reward_first": None, "reward_last": None})
    return TakeUp(run.run_id, run.host_id, checkpoint.step, 0, changes)


def identity_problem(stored: dict[str, Any], project: Project) -> str | None:
    """See ``problem_with``. Reads the training files: call it in a thread. Raises OSError."""
    data_changed = (
        "the training files have changed since its checkpoint, so rows would be skipped or repeated; put them back, or "
        "start a new run with [model] from_checkpoint"
    )
    return problem_with(Cursor, stored, project, identity_of(project), data_changed)
