"""One step's numbers under the names of steps.jsonl."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engine.episodes.runtime import PART, REASON, AttemptResult
from engine.loops.policy_gradient import TrainResult
from engine.recipes.rl.groups import Group
from engine.store.rows import AttemptState

#: A key with more different texts than this in one step is free text, no choice of outcomes: each would be a metric.
MOST_TEXTS = 32


def rollout_metrics(attempts: Sequence[AttemptResult]) -> dict[str, float]:
    """``rollout/…`` over graded attempts: means of numbers, rates of texts, as ``run`` returned them."""
    metrics: dict[str, float] = {}
    if not attempts:
        return metrics
    numbers: dict[str, list[float]] = {}
    texts: dict[str, Counter[str]] = {}
    for attempt in attempts:
        for key, value in attempt.metadata.items():
            if key == REASON:  # a sentence of its own for each attempt: no rate
                continue
            if isinstance(value, str):
                texts.setdefault(key, Counter())[value] += 1
            else:
                numbers.setdefault(key, []).append(float(value))
    for key, values in numbers.items():
        part = key.startswith(PART)
        name = f"reward/part/{key.removeprefix(PART)}" if part else f"rollout/{key}"
        metrics[name] = statistics.fmean(values)
    for key, counts in texts.items():
        if len(counts) <= MOST_TEXTS:
            for value, count in counts.items():
                metrics[f"rollout/{key}/{value}"] = count / len(attempts)
    metrics["rollout/turns"] = statistics.fmean(a.trace.replies for a in attempts)
    metrics["rollout/timed_out"] = statistics.fmean(float(a.timed_out) for a in attempts)
    metrics["rollout/truncated"] = statistics.fmean(float(a.trace.truncated) for a in attempts)
    return metrics


def reward_metrics(trained: Sequence[Group], finished: Sequence[Group]) -> dict[str, float]:
    """``reward/…`` (``reward/task/<id>``: that task's groups) and ``discard/…``. ``finished`` holds every group since the last step, the trained ones included."""
    metrics: dict[str, float] = {}
    kept = [reward for group in trained for reward in group.rewards]
    every = [reward for group in finished for reward in group.rewards]
    if kept:
        metrics["reward/mean"] = statistics.fmean(kept)
        metrics["reward/min"], metrics["reward/max"] = min(kept), max(kept)
        metrics["reward/group_std_mean"] = statistics.fmean(
            group.verdict.std
            for group in trained
            if group.verdict is not None and group.verdict.std is not None
        )
    if every:
        metrics["reward/mean_with_unusable"] = statistics.fmean(every)
    tasks: dict[str, list[float]] = {}
    for group in finished:
        tasks.setdefault(group.task.id, []).extend(group.rewards)
    for task_id, rewards in tasks.items():
        if rewards:
            metrics[f"reward/task/{task_id}"] = statistics.fmean(rewards)
    reasons = Counter(group.verdict.reason for group in finished if group.verdict and group.verdict.reason)
    for reason in ("no_variance", "too_many_losses"):
        metrics[f"discard/groups/{reason}"] = float(reasons.get(reason, 0))
    lost = Counter(
        result.ending or "unknown"
        for group in finished
        for result in group.finished
        if result.state in (AttemptState.LOST, AttemptState.DISCARDED)
    )
    metrics["discard/attempts"] = float(sum(lost.values()))
    for reason, count in lost.items():
        metrics[f"discard/attempts/{reason}"] = float(count)
    metrics["rollout/retries"] = float(
        sum(result.tries - 1 for group in finished for result in group.finished)
    )
    return metrics


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """What a step waited for: its groups, the optimizer, attempts that a publish must not cross, the publish.

    ``sampling``: how long its groups had for being sampled; in sync mode that is ``rollout``.
    """

    rollout: float
    train: float
    held: float
    publish: float
    sampling: float

    @property
    def total(self) -> float:
        return self.rollout + self.train + self.held + self.publish


def token_metrics(
    trained: Sequence[Group], finished: Sequence[Group], sampling_seconds: float
) -> dict[str, float]:
    """``tokens/…``: counts of this step and rates per second of sampling."""
    every = [result for group in finished for result in group.graded]
    sampled = sum(result.trace.sampled_tokens for result in every)
    metrics = {
        "tokens/sampled": float(sampled),
        "tokens/prompt": float(sum(result.trace.prompt_tokens for result in every)),
        "tokens/trained": float(sum(r.trace.trainable_tokens for group in trained for r in group.graded)),
        "tokens/sampled_per_second": sampled / sampling_seconds if sampling_seconds > 0 else 0.0,
    }
    if every:
        metrics["tokens/segments_per_attempt"] = statistics.fmean(len(r.trace.segments) for r in every)
        metrics["tokens/sampled_per_attempt"] = sampled / len(every)
    return metrics


def time_metrics(finished: Sequence[Group], seconds: StepSeconds) -> dict[str, float]:
    """``time/…`` in seconds, and the share of attempts' own time that each phase took."""
    total = seconds.total
    parts = {"rollout": seconds.rollout, "train": seconds.train, "publish": seconds.publish}
    if seconds.held >= 0.001:  # in sync mode nothing holds a publish
        parts["held_publish"] = seconds.held
    else:
        parts["publish"] += seconds.held  # the parts add up to the step
    metrics = {"time/step": total, **{f"time/{part}": value for part, value in parts.items()}}
    spent: dict[str, float] = {}
    for group in finished:
        for result in group.finished:
            for phase, entry in result.timeline.items():
                spent[phase] = spent.get(phase, 0.0) + entry[2]
    whole = sum(spent.values())
    if whole > 0:
        for phase, share in spent.items():
            metrics[f"time/attempt_share/{phase}"] = share / whole
    if total > 0:
        metrics |= {f"time/share/{part}": value / total for part, value in parts.items()}
    return metrics


def step_metrics(
    trained: Sequence[Group],
    finished: Sequence[Group],
    result: TrainResult,
    seconds: StepSeconds,
) -> dict[str, float]:
    """All numbers of one step."""
    return {
        **reward_metrics(trained, finished),
        **rollout_metrics([attempt for group in finished for attempt in group.graded]),
        **token_metrics(trained, finished, seconds.sampling),
        **time_metrics(finished, seconds),
        "loss": result.loss,
        **result.metrics,
        "groups/trained": float(len(trained)),
        "groups/finished": float(len(finished)),
    }
