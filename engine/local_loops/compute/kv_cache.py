"""Keys and values of live sequences in slots, and of prompt prefixes in blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from engine.local_loops.compute.arrays import Array, FloatType
from engine.local_loops.compute.attention import BLOCK, Heads

#: Bytes of prompt blocks that one decoder remembers.
PREFIX_BYTES = 192 * 1024 * 1024


class Slots:
    """One array per layer, (slots, 2, kv_heads, positions, head_dim); both growable, positions by whole blocks.

    ``mask`` (slots, positions) is 0 where a slot holds a position and -inf elsewhere.
    """

    def __init__(self, layers: int, heads: Heads, dtype: FloatType) -> None:
        self._heads, self._dtype = heads, dtype
        self.layers = [self._empty(0, 0) for _ in range(layers)]
        self.mask: Array = np.zeros((0, 0), dtype=self._dtype)

    def _empty(self, slots: int, positions: int) -> Array:
        h = self._heads
        return np.zeros((slots, 2, h.kv_heads, positions, h.head_dim), dtype=self._dtype)

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for so many slots and positions; what is there stays."""
        had_slots, had_positions = self.mask.shape
        if slots <= had_slots and positions <= had_positions:
            return
        if slots > had_slots:
            slots = max(slots, had_slots + had_slots // 2)
        positions = max(-(-positions // BLOCK) * BLOCK, had_positions)
        if positions > had_positions:
            positions = max(positions, (had_positions + had_positions // 4) // BLOCK * BLOCK)
        slots = max(slots, had_slots)
        for index, old in enumerate(self.layers):
            new = self._empty(slots, positions)
            new[:had_slots, :, :, :had_positions] = old
            self.layers[index] = new
        mask = np.full((slots, positions), -np.inf, dtype=self._dtype)
        mask[:had_slots, :had_positions] = self.mask
        self.mask = mask

    def load(self, slot: int, layers: Sequence[Array], length: int) -> None:
        """Fill a slot with the first ``length`` positions of (2, kv_heads, >= length, head_dim) per layer."""
        for target, source in zip(self.layers, layers, strict=True):
            target[slot, :, :, :length] = source[:, :, :length]
        self.mask[slot, :length] = 0
        self.mask[slot, length:] = -np.inf

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one slot over another."""
        for array in self.layers:
            array[target, :, :, :length] = array[source, :, :, :length]
        self.mask[target] = self.mask[source]


class PrefixBlocks:
    """Remembers the keys and values of whole prompt blocks by the tokens that lead up to them.

    What a block holds depends only on those tokens, bit for bit (see :mod:`.attention` and :mod:`.gemm`), so a
    remembered block and a recomputed one are the same. The least recently used are forgotten.
    """

    def __init__(self, limit: int = PREFIX_BYTES) -> None:
        self._limit, self._bytes = limit, 0
        self._blocks: OrderedDict[tuple[int, ...], Array] = OrderedDict()

    @staticmethod
    def keys(prompt: Sequence[int]) -> list[tuple[int, ...]]:
        """Keys of the prompt's whole blocks, leaving at least the last token to be computed."""
        return [tuple(prompt[:end]) for end in range(BLOCK, len(prompt), BLOCK)]

    def find(self, keys: Sequence[tuple[int, ...]]) -> list[Array]:
        """The longest remembered run of blocks from the prompt's start, each (layers, 2, kv_heads, BLOCK, head_dim)."""
        found = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            self._blocks.move_to_end(key)
            found.append(block)
        return found

    def remember(self, key: tuple[int, ...], block: Array) -> None:
        if key in self._blocks or block.nbytes > self._limit:
            return
        self._blocks[key] = block
        self._bytes += block.nbytes
        while self._bytes > self._limit:
            self._bytes -= self._blocks.popitem(last=False)[1].nbytes
