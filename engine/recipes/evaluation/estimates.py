"""What an evaluation's rewards say about the weights: a mean with its interval, pass@k, and how two compare.

The unit is the task. A task's score is the mean of its graded attempts, and the mean over tasks has the standard error
of those scores, s / sqrt(n) with s their sample deviation: what the attempts of one task share and what the sampling adds
are both in it (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640). Because n is often
small, the 95 % interval takes Student's t with n - 1 degrees of freedom instead of 1.96.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the bounds of its 95 % confidence interval; both None where one value alone tells no spread."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task: how many attempts were graded, how many passed, and their mean reward."""

    mean: float
    graded: int
    passed: int


def score(rewards: Sequence[float], pass_reward: float) -> TaskScore | None:
    """A task's score; None where no attempt was graded."""
    if not rewards:
        return None
    passed = sum(reward >= pass_reward for reward in rewards)
    return TaskScore(statistics.fmean(rewards), len(rewards), passed)


def interval(values: Sequence[float]) -> Interval | None:
    """The mean of the tasks' scores with its 95 % interval; None without any."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean)
    half = (
        t_quantile((1 + CONFIDENCE) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    )
    return Interval(mean, mean - half, mean + half)


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> Interval | None:
    """How much better ``after`` is on the tasks that both have (task id -> score), with the interval of that.

    Paired by task, so that what makes one task harder than another drops out (Miller 2024).
    """
    shared = sorted(before.keys() & after.keys())
    return interval([after[task] - before[task] for task in shared])


def pass_at(scores: Sequence[TaskScore], attempts: int) -> dict[str, float]:
    """k as text -> the unbiased estimate of pass@k, for every k up to ``attempts``.

    1 - C(n - c, k) / C(n, k) for a task with c of n attempts passed, averaged over the tasks with at least k graded
    attempts (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, equation 1).
    """
    found: dict[str, float] = {}
    for k in range(1, attempts + 1):
        enough = [task for task in scores if task.graded >= k]
        if enough:
            found[str(k)] = statistics.fmean(
                1.0 - math.comb(task.graded - task.passed, k) / math.comb(task.graded, k) for task in enough
            )
    return found


def t_quantile(p: float, freedom: int) -> float:
    """Student's t: the value that is exceeded with probability 1 - p.

    Exact for 1 and 2 degrees of freedom, from there on Abramowitz & Stegun 26.7.5 (within 0.2 % at p = 0.975).
    """
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2 * p - 1) / math.sqrt(2 * p * (1 - p))
    x = statistics.NormalDist().inv_cdf(p)
    terms = (
        x,
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
