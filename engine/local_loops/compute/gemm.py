"""Matrix products whose rows do not depend on one another's company, bit for bit.

A BLAS picks its kernel by the shape of the whole product: a single row is a matrix-vector product, a few rows take a
small-matrix kernel, and rows left over by the kernel's tile take another path. Each sums in a different order, so the
same row gets other last bits in another batch, and a sampled run cannot be repeated. Two things make rows
independent: giving the product a number of rows that the kernel likes (``unit`` and ``minimum``), or, where no such
number exists, always computing tiles of one fixed shape. Which of them works differs between processors (OpenBLAS'
AVX-512 kernels are content with padding; those for Haswell and Zen need tiles of 8 rows and then reach about half
the speed at large batches), so it is found by trying on the machine at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.arrays import Array

#: (unit, minimum) to try, cheapest first.
_PADDINGS = ((4, 4), (8, 8), (16, 16), (8, 32), (32, 64))
#: Tiles to try after them. A tile of one row cannot fail: it has no company.
_TILES = (8, 16, 4, 2, 1)
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

    @property
    def loose(self) -> RowRule:
        """Padding alone, for products whose rows may depend on their company: training need not repeat by row."""
        return RowRule(self.unit, self.minimum)

    def padded(self, rows: int) -> int:
        """The number of rows to compute for ``rows`` wanted ones."""
        return max(self.minimum, -(-rows // self.unit) * self.unit)

    def product(self, x: Array, w: Array, out: Array | None = None) -> Array:
        """``x @ w`` for an x that has a padded number of rows."""
        if not self.tile:
            return np.matmul(x, w, out=out)
        result = np.empty((x.shape[0], w.shape[1]), dtype=x.dtype) if out is None else out
        np.matmul(
            x.reshape(-1, self.tile, x.shape[1]), w, out=result.reshape(-1, self.tile, w.shape[1], copy=False)
        )
        return result


def find_rule(shapes: Iterable[tuple[int, int]], dtype: npt.DTypeLike = np.float32) -> RowRule:
    """The cheapest rule under which products with matrices of all these shapes (in, out) have independent rows."""
    trials = [_Trial(k, n if n <= _WIDEST else _WIDEST + n % 64, dtype) for k, n in sorted(set(shapes))]
    rules = [RowRule(unit, minimum) for unit, minimum in _PADDINGS] + [
        RowRule(tile, tile, tile) for tile in _TILES
    ]
    return next(rule for rule in rules if all(trial.holds(rule) for trial in trials))


class _Trial:
    """Random rows and a matrix of one shape; a rule holds if each row comes out the same in several batches."""

    _ROWS = 192

    def __init__(self, k: int, n: int, dtype: npt.DTypeLike) -> None:
        generator = np.random.default_rng(k * 65_537 + n)
        self.w = generator.standard_normal((k, n)).astype(dtype)
        self.x = generator.standard_normal((self._ROWS, k)).astype(dtype)

    def holds(self, rule: RowRule) -> bool:
        if rule.tile == 1:
            return True
        whole = rule.product(self.x[: self._ROWS // rule.unit * rule.unit], self.w)
        for wanted in (1, 2, 3, 4, 5, 7, 8, 10, 12):
            rows = rule.padded(wanted * rule.unit)
            for start in (0, 1, 5, 6, 17):
                if start + rows > whole.shape[0]:
                    continue
                part = rule.product(self.x[start : start + rows].copy(), self.w)
                if not np.array_equal(part, whole[start : start + rows]):
                    return False
        return True
