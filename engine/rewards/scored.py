"""A reward that says what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self


class Reward(float):
    """A float with its parts and its reason, so that metrics, tables and transcripts can show them.

    ``parts``: name to value, before weighting. ``reason``: one sentence on why it is what it is, "" where there is
    nothing to say. Arithmetic gives plain floats: a sum of rewards is :func:`engine.rewards.weighted`.
    """

    parts: Mapping[str, float]
    reason: str

    def __new__(cls, value: float, *, parts: Mapping[str, float] | None = None, reason: str = "") -> Self:
        self = super().__new__(cls, value)
        self.parts = dict(parts or {})
        self.reason = reason
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, object]]:  # copies and pickles keep both
        return (float(self),), {"parts": self.parts, "reason": self.reason}
