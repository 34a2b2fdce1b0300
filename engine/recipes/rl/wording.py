"""Sentences of a run's log."""

from __future__ import annotations

from collections.abc import Sequence

from engine.recipes.rl.groups import Group


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


def untrained_line(step: int, usable: int, needed: int) -> str:
    """What a stop does to a step that it leaves short of groups."""
    return (
        f"step {step} is not trained: {usable} of the {needed} groups that it needs were usable when the run was to stop, "
        "and the later ones were given up"
    )


def solved_line(count: int, best: float) -> str:
    """Why a run is done before its steps are."""
    return (
        f"every attempt of the last {count} groups earned {best:g}, the best reward seen: these tasks have nothing "
        "left to teach"
    )


def exhausted_line(count: int, groups: Sequence[Group]) -> str:
    """Why a run failed whose groups teach nothing."""
    reasons = {group.verdict.reason for group in groups if group.verdict}
    if reasons == {"no_variance"}:
        why = "in each, every attempt scored alike; make the tasks harder or easier, or raise group_size"
    elif reasons == {"too_many_losses"}:
        why = f"attempts were lost to failures, the last one: {_last_error(groups) or 'unknown'}"
    else:
        why = f"attempts scored alike or were lost, the last failure: {_last_error(groups) or 'none'}"
    return f"{count} groups in a row taught nothing ([training] max_consecutive_unusable_groups): {why}"


def _last_error(groups: Sequence[Group]) -> str | None:
    errors = [result.error for group in groups for result in group.finished if result.error]
    return errors[-1] if errors else None
