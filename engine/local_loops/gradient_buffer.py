"""Gradients between two optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.local_loops.compute.interface import Gradients


@dataclass(slots=True)
class GradientBuffer:
    """Gradients since the last optimizer step.

    Token normalisation is deferred: sums and denominators add up over requests, so several requests make the step
    that one request of all their datums would have made. Requests that asked not to be normalised stay apart.
    """

    summed: Gradients | None = None
    plain: Gradients | None = None
    tokens: float = 0.0
    requests: int = 0

    def add(self, gradients: Gradients, tokens: float, *, normalise: bool) -> None:
        self.requests += 1
        self.tokens += tokens
        if normalise:
            self.summed = _added(self.summed, gradients)
        else:
            self.plain = _added(self.plain, gradients)

    def total(self, empty: Gradients) -> Gradients:
        """The gradient for the optimizer; ``empty`` holds the zeros it starts from."""
        if self.summed is not None and self.tokens > 0:
            for name, value in self.summed.items():
                empty[name] += value / np.float32(self.tokens)
        if self.plain is not None:
            for name, value in self.plain.items():
                empty[name] += value
        return empty


def _added(total: Gradients | None, more: Gradients) -> Gradients:
    if total is None:
        return more
    for name, value in more.items():
        total[name] += value
    return total
