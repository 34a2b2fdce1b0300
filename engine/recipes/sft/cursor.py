"""Where an SFT run stands between two steps: every sample is trained as often with a resume as without one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine.config.data_files import expand
from engine.config.local_models import model_fingerprint
from engine.recipes.sft.prepared import content_fingerprint
from engine.store.resume import TakeUp
from engine.store.rows import CheckpointRow, RunRow

if TYPE_CHECKING:
    from engine.project import Project


@dataclass(frozen=True, slots=True)
class DataIdentity:
    """What a curve is over. ``train``: a fingerprint of the training files; ``model``: of a local model's directory."""

    train: str
    model: str | None

    @classmethod
    def of(cls, project: Project) -> DataIdentity:
        """Reads the training files: call it in a thread. Raises OSError."""
        directory = project.model_dir
        return cls(
            content_fingerprint(expand(project.sft.data.train)),
            None if directory is None else model_fingerprint(directory),
        )


@dataclass(frozen=True, slots=True)
class Cursor:
    """``epoch`` (0-based) and ``place`` in its order are where the next batch begins.

    ``best`` is the lowest validation loss so far, ``worse`` how many validations came after it.
    """

    identity: DataIdentity
    epoch: int
    place: int
    best: float | None
    worse: int
    loss_first: float | None
    loss_last: float | None

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
        return TakeUp(run.run_id, run.host_id, changes={**changes, "reward_first": None, "reward_last": None})
    return TakeUp(run.run_id, run.host_id, checkpoint.step, 0, changes)


def identity_problem(stored: dict[str, Any], project: Project) -> str | None:
    """Why a run must not go on from a checkpoint with this cursor: one sentence, or None. Raises OSError."""
    try:
        before = Cursor.from_row(stored).identity
    except (KeyError, TypeError):
        return (
            "its checkpoint was written by another version of loops-tui and does not say where the run stood"
        )
    now = DataIdentity.of(project)
    if now.train != before.train:
        return (
            "the training files have changed since its checkpoint, so rows would be skipped or repeated; put them "
            "back, or start a new run with [model] from_checkpoint"
        )
    if now.model != before.model:
        return (
            f"the model in {project.model_dir} has changed since its checkpoint, so the saved adapter no longer fits "
            "it; put the model back, or start a new run"
        )
    return None
