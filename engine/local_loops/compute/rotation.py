"""Rotary positions as complex factors, computed once and grown on demand."""

from __future__ import annotations

import numpy as np

from engine.local_loops.compute.arrays import Complex, FloatType, complex_type
from engine.local_loops.compute.model_files import ModelConfig


class Rotation:
    """``factors(positions)`` gives (…, head_dim/2) unit complex numbers; angles are computed in float64."""

    def __init__(self, config: ModelConfig, dtype: FloatType) -> None:
        self._inverse = config.rope.inverse_frequencies(config.head_dim)
        self.dtype = complex_type(dtype)
        self._table: Complex = np.empty((0, config.head_dim // 2), dtype=self.dtype)

    def table(self, length: int) -> Complex:
        """The factors of at least the first ``length`` positions."""
        if length > self._table.shape[0]:
            size = max(512, 1 << (length - 1).bit_length())
            angles = np.arange(size, dtype=np.float64)[:, None] * self._inverse
            self._table = np.exp(1j * angles).astype(self.dtype)
        return self._table
