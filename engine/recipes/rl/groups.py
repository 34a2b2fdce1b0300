"""Groups: one task, several attempts under one policy, and what each attempt is worth against the others."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from engine.episodes.contract import Task
from engine.episodes.runtime import AttemptResult
from engine.store.rows import AttemptState

#: Rewards closer than this are the same reward: float noise of a grader is no signal.
SAME_REWARD = 1e-9


@dataclass(slots=True)
class Verdict:
    """What a finished group teaches.

    ``advantages`` holds reward minus the mean of the group's usable rewards, by attempt (GRPO without the division
    by the standard deviation: Shao et al. 2024, eq. 4, as revised by Liu et al. 2025, "Dr. GRPO"); they sum to 0.
    """

    usable: bool
    reason: str | None  # None, "no_variance" or "too_many_losses"
    rewards: dict[int, float]
    mean: float | None
    std: float | None  # population standard deviation
    advantages: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Group:
    """A group in flight or finished. ``results[j]`` is attempt j's, None while it runs.

    ``policy_version``: under which its first attempt began to sample. ``for_step``: the step that trains it, if none of
    the groups before it is rejected.
    """

    group_id: int
    task: Task[object]
    epoch: int
    size: int
    policy_version: int
    results: list[AttemptResult | None]
    started_at: float = 0.0
    for_step: int = 0
    ended_at: float | None = None
    verdict: Verdict | None = None

    @property
    def finished(self) -> list[AttemptResult]:
        return [result for result in self.results if result is not None]

    @property
    def rewards(self) -> list[float]:
        """Of the graded attempts, once the group is judged."""
        return list(self.verdict.rewards.values()) if self.verdict else []

    @property
    def graded(self) -> list[AttemptResult]:
        return [result for result in self.finished if result.state is AttemptState.DONE]


@dataclass(slots=True)
class Collected:
    """A step's groups: ``usable`` in order of their ids, ``finished`` with the rejected ones between them.

    ``exhausted``: too many groups in a row taught nothing. ``seconds``: how long the step waited for them.
    """

    usable: list[Group] = field(default_factory=list)
    finished: list[Group] = field(default_factory=list)
    exhausted: bool = False
    seconds: float = 0.0


def judge(group: Group, max_group_losses: int) -> Verdict:
    """Decide whether a finished group trains, and compute its advantages.

    A group trains if at most ``max_group_losses`` attempts are missing, at least two are left to compare, and their
    rewards differ (by range, not by mean: constant groups of any value teach nothing).
    """
    rewards = {
        index: result.reward
        for index, result in enumerate(group.results)
        if result is not None and result.state is AttemptState.DONE and result.reward is not None
    }
    values = list(rewards.values())
    mean = statistics.fmean(values) if values else None
    std = statistics.pstdev(values) if values else None
    if group.size - len(values) > max_group_losses or len(values) < 2 or mean is None:
        return Verdict(False, "too_many_losses", rewards, mean, std)
    if max(values) - min(values) <= SAME_REWARD:
        return Verdict(False, "no_variance", rewards, mean, std)
    advantages = {index: reward - mean for index, reward in rewards.items()}
    return Verdict(True, None, rewards, mean, std, advantages)
