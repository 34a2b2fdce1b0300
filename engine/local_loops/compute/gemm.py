"""Matrix products whose rows do not depend on one another's company, bit for bit.

A BLAS picks its kernel by the shape of the whole product: a single row is a matrix-vector product, a few rows take a
small-matrix kernel, and rows left over by the kernel's tile take another path. Each sums in a different order, so the
same row gets other last bits in another batch, and a sampled run cannot be repeated. Two things make rows
independent: giving the product a number of rows that the kernel likes (``unit`` and ``minimum``, found by trying on
the machine at hand, because it differs between processors), or, where no such number is found, always computing
tiles of one fixed shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.arrays import Array

#: (unit, minimum): tried in this order, cheapest first. 12 rows are Haswell's and Zen's tile, 4 to 16 AVX-512's.
_CANDIDATES = ((4, 4), (8, 8), (12, 12), (24, 24), (8, 32), (24, 48), (48, 96))
_TILE = 24
#: Wide matrices are tried with fewer columns: the order of summation depends on the tile, not on the width.
_WIDEST = 4096


@dataclass(frozen=True, slots=True)
class RowRule:
    """How many rows a product must have for its rows to be independent.

    ``tile`` is 0 where padding is enough; otherwise products are computed in tiles of that many rows.
    """

    unit: int
    minimum: int
    tile: int = 0

    def padded(self, rows: int) -> int:
        """The number of rows to compute for ``rows`` wanted ones."""
        return max(self.minimum, -(-rows // self.unit) * self.unit)

    def product(self, x: Array, w: Array, out: Array | None = None) -> Array:
        """``x @ w`` for an x that has a padded number of rows."""
        if not self.tile:
            return np.matmul(x, w, out=out)
        result = np.empty((x.shape[0], w.shape[1]), dtype=x.dtype) if out is None else out
        for start in range(0, x.shape[0], self.tile):
            np.matmul(x[start : start + self.tile], w, out=result[start : start + self.tile])
        return result


def find_rule(shapes: Iterable[tuple[int, int]], dtype: npt.DTypeLike = np.float32) -> RowRule:
    """The cheapest rule under which products with matrices of all these shapes (in, out) have independent rows."""
    trials = [_Trial(k, n if n <= _WIDEST else _WIDEST + n % 64, dtype) for k, n in sorted(set(shapes))]
    for unit, minimum in _CANDIDATES:
        rule = RowRule(unit, minimum)
        if all(trial.holds(rule) for trial in trials):
            return rule
    return RowRule(_TILE, _TILE, _TILE)


class _Trial:
    """Random rows and a matrix of one shape; a rule holds if each row comes out the same in several batches."""

    _ROWS = 192

    def __init__(self, k: int, n: int, dtype: npt.DTypeLike) -> None:
        generator = np.random.default_rng(k * 65_537 + n)
        self.w = generator.standard_normal((k, n)).astype(dtype)
        self.x = generator.standard_normal((self._ROWS, k)).astype(dtype)

    def holds(self, rule: RowRule) -> bool:
        whole = self.x[: self._ROWS // rule.unit * rule.unit] @ self.w
        for wanted in (1, 2, 3, 4, 5, 7, 8, 10, 12):
            rows = rule.padded(wanted * rule.unit)
            for start in (0, 1, 5, 17):
                if start + rows > whole.shape[0]:
                    continue
                part = np.ascontiguousarray(self.x[start : start + rows]) @ self.w
                if not np.array_equal(part, whole[start : start + rows]):
                    return False
        return True
