"""The output head in chunks of positions: log-probabilities, the likeliest tokens, and the backward pass.

Logits of a whole batch are never held at once: 16 sequences of 300 tokens with a vocabulary of 49k would be 0.94 GB.
Only positions that are scored are computed at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.local_loops.compute.arrays import Array
from engine.local_loops.compute.gemm import RowRule
from engine.local_loops.compute.interface import IntArray


class Head:
    """Scores hidden states against a (d, V) head. ``budget`` bounds the logits held at once, in elements."""

    def __init__(self, rule: RowRule, budget: int = 4_000_000) -> None:
        self.rule, self.budget = rule, budget

    def score(
        self, head: Array, hidden: Array, targets: IntArray, top_k: int = 0
    ) -> tuple[Array, Array, IntArray | None, Array | None]:
        """Log-probabilities of (n, K) targets for (n, d) hidden states, log-sum-exps (n, 1), and the top k.

        A target of -1 gets 0.0. Top-k arrays are (n, k), likeliest first, or None.
        """
        count = hidden.shape[0]
        logprobs = np.zeros(targets.shape, dtype=hidden.dtype)
        sums = np.empty((count, 1), dtype=hidden.dtype)
        top_ids = np.empty((count, top_k), dtype=np.int64) if top_k else None
        top_values = np.empty((count, top_k), dtype=hidden.dtype) if top_k else None
        for rows, chunk in self._chunks(head, hidden):
            logits = chunk  # overwritten in place
            peak = logits.max(axis=1, keepdims=True)
            wanted = targets[rows]
            chosen = np.take_along_axis(logits, np.maximum(wanted, 0), axis=1)
            if top_ids is not None and top_values is not None:
                top_ids[rows], top_values[rows] = _largest(logits, top_k)
            logits -= peak
            np.exp(logits, out=logits)
            # In float64 and rounded once, as the sampler does, so that both report the same number.
            total = np.log(logits.sum(axis=1, keepdims=True, dtype=np.float64))
            sums[rows] = total + peak
            logprobs[rows] = np.where(wanted >= 0, (chosen.astype(np.float64) - peak) - total, 0)
        if top_values is not None:
            top_values -= sums
        return logprobs, sums, top_ids, top_values

    def backward(self, head: Array, hidden: Array, targets: IntArray, sums: Array, gradient: Array) -> Array:
        """dL/dhidden (n, d), given dL/dlogprob (n, K) (0 where a target is -1) and the sums from :meth:`score`."""
        result = np.zeros_like(hidden)
        wanted = np.maximum(targets, 0)
        for rows, chunk in self._chunks(head, hidden):
            logits = chunk  # overwritten in place
            logits -= sums[rows]
            np.exp(logits, out=logits)
            slope = gradient[rows]
            logits *= -slope.sum(axis=1, keepdims=True)
            lines = np.broadcast_to(np.arange(logits.shape[0])[:, None], slope.shape)
            np.add.at(logits, (lines, wanted[rows]), slope)  # a target may occur twice among K
            np.matmul(logits, head.T, out=result[rows])
        return result

    def _chunks(self, head: Array, hidden: Array) -> Iterator[tuple[slice, Array]]:
        count = hidden.shape[0]
        size = max(self.rule.unit, self.budget // head.shape[1] // self.rule.unit * self.rule.unit)
        for start in range(0, count, size):
            rows = slice(start, min(count, start + size))
            part = hidden[rows]
            padded = self.rule.padded(part.shape[0])
            if padded != part.shape[0]:
                part = np.concatenate(
                    [part, np.zeros((padded - part.shape[0], part.shape[1]), dtype=part.dtype)]
                )
            yield rows, self.rule.product(part, head)[: rows.stop - rows.start]


def _largest(logits: Array, k: int) -> tuple[IntArray, Array]:
    """Ids and values of the k largest of each row, largest first; of equals the lower id first."""
    k = min(k, logits.shape[1])
    picked = np.sort(np.argpartition(-logits, k - 1, axis=1)[:, :k], axis=1)
    values = np.take_along_axis(logits, picked, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(picked, order, axis=1), np.take_along_axis(values, order, axis=1)
