"""How a run came along, by its recipe: the reward of reinforcement learning, the held-out loss of fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.rows import RunRow


def score_value(row: RunRow) -> dict[str, Any]:
    """How a run came along, by its recipe: the mean reward of its steps, or the loss on its held-out rows."""
    if row.recipe == "sft":
        loss = row.info.get("loss", {})
        return {"loss": {"first": loss.get("first"), "last": loss.get("last")}}
    return {"reward": {"first": row.reward_first, "last": row.reward_last}}


def score_words(row: RunRow) -> str | None:
    """The last of it, for a line; None where there is none yet."""
    if row.recipe == "sft":
        last = row.info.get("loss", {}).get("last")
        return None if last is None else f"loss {last:.3f}"
    return None if row.reward_last is None else f"{row.reward_last:.3f}"
