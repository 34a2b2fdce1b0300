"""Reward functions that an Episode's ``grade`` and TRL's GRPO trainer can both call, and their weighted sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.rewards.scored import Reward

type Score = Callable[[Any, Mapping[str, Any]], float]


class RewardFunction:
    """Scores one attempt with :meth:`one`, or a batch as TRL calls it: ``function(completions=…, **columns)``.

    ``columns`` are the data set's own: one value for each completion in a list, or one value for all. ``value`` is
    what a full score earns.
    """

    def __init__(self, name: str, score: Score) -> None:
        self.__name__ = self.name = name  # TRL logs a function by its __name__
        self._score = score

    def one(self, attempt: Any, **columns: Any) -> Reward:
        """The reward of one attempt, with its reason. Raises ValueError where it is no finite number."""
        found = self._score(attempt, columns)
        if not math.isfinite(found):
            raise ValueError(f"the reward {self.name} is {float(found)}, which is no finite number")
        return found if isinstance(found, Reward) else Reward(found)

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float]:
        """The rewards of a batch, in TRL's shape."""
        rows = len(completions)
        return [
            float(
                self.one(completion, **{name: _of_row(value, place, rows) for name, value in columns.items()})
            )
            for place, completion in enumerate(completions)
        ]


def weighted(parts: Mapping[str, float], weights: Mapping[str, float] | None = None) -> Reward:
    """The weighted sum of named rewards; the parts stay visible, unweighted. A part without a weight counts once.

    Raises:
        ValueError: a weight names no part, or the sum is no finite number.
    """
    unknown = set(weights or ()) - set(parts)
    if unknown:
        raise ValueError(f"a weight is given for {', '.join(sorted(unknown))}, and there is no such part")
    total = math.fsum((weights or {}).get(name, 1.0) * float(value) for name, value in parts.items())
    if not math.isfinite(total):
        raise ValueError("the sum of the rewards is no finite number")
    reasons = [
        f"{name}: {value.reason}"
        for name, value in parts.items()
        if isinstance(value, Reward) and value.reason
    ]
    return Reward(
        total, parts={name: float(value) for name, value in parts.items()}, reason="; ".join(reasons)
    )


def weighted_sum(functions: Mapping[RewardFunction, float]) -> RewardFunction:
    """One function out of several with their weights."""
    weights = {function.name: weight for function, weight in functions.items()}

    def score(attempt: Any, columns: Mapping[str, Any]) -> Reward:
        return weighted({function.name: function.one(attempt, **columns) for function in functions}, weights)

    return RewardFunction("weighted_sum", score)


def _of_row(value: Any, place: int, rows: int) -> Any:
    """A column's value for one completion: TRL hands a list with one entry for each."""
    return value[place] if isinstance(value, list) and len(value) == rows else value
