"""The recipes by name. Each is imported when it is needed: the SDK and the tokenizers come with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from engine.recipes.contract import Outcome, RunFailed, RunHandle

if TYPE_CHECKING:
    from engine.project import Project
    from engine.store.resume import TakeUp
    from engine.store.rows import CheckpointRow, RunRow

RECIPES = ("rl", "sft")


def train_of(recipe: str) -> Callable[[Project, RunHandle], Awaitable[Outcome]]:
    """The training loop of a recipe. Raises RunFailed for one that there is not."""
    if recipe == "rl":
        from engine.recipes.rl.run import train
    elif recipe == "sft":
        from engine.recipes.sft.run import train
    else:
        raise RunFailed(f"recipe {recipe!r} cannot be run by this version of loops-tui")
    return train


def take_up(run: RunRow, checkpoint: CheckpointRow | None, changes: dict[str, Any]) -> TakeUp:
    """How the store takes a run up: where its checkpoint says, or from the beginning where there is none."""
    if run.recipe == "sft":
        from engine.recipes.sft import cursor
    else:
        from engine.recipes.rl import cursor
    return cursor.take_up(run, checkpoint, changes)


def identity_problem(recipe: str, stored: dict[str, Any], project: Project) -> str | None:
    """Why a run must not go on from a checkpoint with this cursor: one sentence, or None.

    Reads the run's data: call it in a thread. Raises ConfigError.
    """
    if recipe == "sft":
        from engine.recipes.sft import cursor
    else:
        from engine.recipes.rl import cursor
    return cursor.identity_problem(stored, project)
