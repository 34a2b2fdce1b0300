"""Where a run stands between two steps, as its checkpoints keep it: what the cursors of both recipes have in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from engine.config.local_models import model_fingerprint

if TYPE_CHECKING:
    from engine.project import Project

type Identity = dict[str, str | None]
"""What a curve is over: a fingerprint of its data, and of a local model's directory (``model``)."""


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor whose fields are what JSON can hold."""

    identity: Identity

    def to_row(self) -> dict[str, Any]:
        """As a checkpoint's row keeps it."""
        return asdict(self)

    @classmethod
    def from_row(cls, stored: dict[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError where it was written by something else."""
        return cls(**{**stored, "identity": dict(stored["identity"])})


def identity_over(project: Project, **data: str) -> Identity:
    """That of a project with these fingerprints. Reads a local model's directory: call it in a thread."""
    directory = project.model_dir
    return {**data, "model": None if directory is None else model_fingerprint(directory)}


def problem_with(
    cursor: type[StoredCursor], stored: dict[str, Any], project: Project, now: Identity, data_changed: str
) -> str | None:
    """Why a run must not go on from a checkpoint with this cursor: one sentence, or None.

    ``now``: what the run would be over. ``data_changed``: the sentence for other data.
    """
    try:
        before = cursor.from_row(stored).identity
    except (KeyError, TypeError, ValueError):
        return (
            "its checkpoint was written by another version of loops-tui and does not say where the run stood"
        )
    if before == now:
        return None
    if {**before, "model": None} != {**now, "model": None}:
        return data_changed
    return (
        f"the model in {project.model_dir} has changed since its checkpoint, so the saved adapter no longer fits "
        "it; put the model back, or start a new run"
    )
