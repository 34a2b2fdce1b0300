"""Sentences of a run's log."""

from __future__ import annotations


def step_line(step: int, of: int, metrics: dict[str, float]) -> str:
    """One step in one line of the log."""
    parts = [f"reward {metrics['reward/mean_with_unusable']:.3f}"]
    if metrics["groups/finished"] > metrics["groups/trained"]:
        alike, lost = metrics["discard/groups/no_variance"], metrics["discard/groups/too_many_losses"]
        parts.append(f"trained on {metrics['reward/mean']:.3f}")
        parts += [f"{_groups(alike)} all alike"] if alike else []
        parts += [f"{_groups(lost)} lost"] if lost else []
    parts.append(f"spread {metrics['reward/group_std_mean']:.3f}")
    k3 = metrics.get("optim/train-sample-div/kl_sample_train_k3")
    parts += [f"KL {k3:.1e}"] if k3 is not None else []
    parts.append(f"{metrics['tokens/sampled_per_second']:.0f} tok/s")
    return f"step {step}/{of}: {', '.join(parts)}, {metrics['time/step']:.1f} s"


def _groups(count: float) -> str:
    return "1 group" if count == 1 else f"{count:.0f} groups"
