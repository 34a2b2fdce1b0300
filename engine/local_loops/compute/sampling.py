"""Drawing one token per row, vectorised over rows, each row from its own random numbers.

A draw inverts the cumulative distribution in float64, in the order of token ids, so it depends on the row's logits
and its uniform number alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.arrays import Array
from engine.local_loops.compute.interface import DecodeRequest, IntArray

Doubles = npt.NDArray[np.float64]

#: Below this, a temperature means greedy decoding.
GREEDY_BELOW = 1e-5
_BLOCK = 64
_SEED_MASK = 2**64 - 1


@dataclass(slots=True)
class RowSampling:
    """How one row is sampled, and its own stream of uniform numbers, drawn in blocks."""

    inverse_temperature: float
    greedy: bool
    top_k: int
    top_p: float
    generator: np.random.Generator
    block: Doubles
    used: int = 0

    @classmethod
    def of(cls, request: DecodeRequest, index: int) -> RowSampling:
        """The stream of completion ``index``: seeded by (seed, index) and nothing else."""
        greedy = request.temperature < GREEDY_BELOW
        generator = np.random.default_rng([request.seed & _SEED_MASK, index])
        return cls(
            inverse_temperature=1.0 if greedy else 1.0 / request.temperature,
            greedy=greedy,
            top_k=0 if greedy else max(0, request.top_k),
            top_p=1.0 if greedy else request.top_p,
            generator=generator,
            block=generator.random(_BLOCK),
        )

    def uniform(self) -> float:
        """The next number of the stream, in [0, 1)."""
        if self.used == _BLOCK:
            self.block, self.used = self.generator.random(_BLOCK), 0
        self.used += 1
        return float(self.block[self.used - 1])


def draw(logits: Array, rows: list[RowSampling]) -> tuple[IntArray, Doubles]:
    """One token per row of (B, V) logits, and its log-probability under the distribution it was drawn from."""
    count, vocabulary = logits.shape
    inverse = np.array([row.inverse_temperature for row in rows])
    uniform = np.array([row.uniform() for row in rows])
    peak = logits.max(axis=1)
    weights = logits - peak[:, None]
    if (inverse != 1.0).any():
        weights *= inverse.astype(logits.dtype)[:, None]
    np.exp(weights, out=weights)
    cut = [i for i, row in enumerate(rows) if 0 < row.top_k < vocabulary or row.top_p < 1.0]
    if cut:
        top_k = np.array([rows[i].top_k or vocabulary for i in cut])
        top_p = np.array([rows[i].top_p for i in cut])
        weights[cut] = truncate(weights[cut], top_k, top_p)
    sums = np.cumsum(weights, axis=1, dtype=np.float64)
    total = sums[:, -1]
    # The largest number below the total keeps rounding from stepping past the last token.
    threshold = np.minimum(uniform * total, np.nextafter(total, 0.0))
    tokens = (sums > threshold[:, None]).argmax(axis=1)
    greedy = [i for i, row in enumerate(rows) if row.greedy]
    if greedy:
        tokens[greedy] = logits[greedy].argmax(axis=1)
    chosen = logits[np.arange(count), tokens].astype(np.float64) - peak
    logprobs = chosen * inverse - np.log(total)
    return tokens, logprobs.astype(logits.dtype).astype(np.float64)


def truncate(weights: Array, top_k: IntArray, top_p: Doubles) -> Array:
    """Unnormalised (m, V) probabilities with all but each row's top k, then its nucleus of top_p, set to 0.

    The nucleus is the smallest set of likeliest tokens whose share of what top_k left reaches top_p; the likeliest
    token always stays. Of equally likely tokens at the edge the lower ids stay.
    """
    lines, vocabulary = np.arange(weights.shape[0]), weights.shape[1]
    falling = -np.sort(-weights, axis=1)
    sums = np.cumsum(falling, axis=1, dtype=np.float64)
    by_k = np.clip(top_k, 1, vocabulary)
    need = top_p * sums[lines, by_k - 1]
    by_p = (sums < need[:, None]).sum(axis=1) + 1
    kept = np.where(top_p < 1.0, np.minimum(by_p, by_k), by_k)
    edge = falling[lines, kept - 1][:, None]
    above, level = weights > edge, weights == edge
    allowed = kept - above.sum(axis=1)
    keep = above | (level & (np.cumsum(level, axis=1) <= allowed[:, None]))
    return np.where(keep, weights, 0)
