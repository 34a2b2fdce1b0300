"""Checkpoints in words, for the command line and the screen alike: plain text, no colours."""

from __future__ import annotations

from engine.store.rows import CheckpointRow, CheckpointState

WHY = {
    "every": "every few steps",
    "asked": "asked for",
    "end": "at the end",
    "stop": "when stopped",
    "interrupt": "when interrupted",
    "budget": "at the budget's end",
    "hand-over": "handed over",
}


def score_of(row: CheckpointRow, recipe: str) -> tuple[str, float | None]:
    """How good its step was, and what that is: the mean reward, or of fine-tuning the loss, on held-out rows where
    that step was validated."""
    if recipe != "sft":
        return "reward", row.reward_mean
    if "loss/validation" in row.metrics:
        return "validation loss", row.metrics["loss/validation"]
    return "training loss", row.metrics.get("loss")


def size_words(size: int | None) -> str:
    """A size in bytes as people read it: 812 B, 3.4 MiB; a dash where it is not known."""
    if size is None:
        return "–"
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def kind_words(row: CheckpointRow) -> str:
    """What a checkpoint holds: the trainer's state to resume from, the sampler's weights to use, or both."""
    parts = [
        name
        for name, path in (("trainer", row.trainer_path), ("sampler", row.sampler_path))
        if path is not None
    ]
    return "+".join(parts) or "–"


def state_words(row: CheckpointRow) -> str:
    """Its state; why it failed is in the row's error."""
    return {
        CheckpointState.SAVING: "being saved",
        CheckpointState.SAVED: "saved",
        CheckpointState.FAILED: "failed",
        CheckpointState.DELETED: "gone from Loops",
    }[row.state]


def why_words(row: CheckpointRow) -> str:
    return WHY.get(row.why, row.why)
