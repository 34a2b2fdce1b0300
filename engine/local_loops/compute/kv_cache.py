"""Keys and values of live sequences in slots, and of prompt prefixes; both in the blocks of :mod:`.attention`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from engine.local_loops.compute.arrays import Array, FloatType
from engine.local_loops.compute.attention import BLOCK, Heads

#: Bytes of prompt blocks that one decoder remembers.
PREFIX_BYTES = 192 * 1024 * 1024


class Slots:
    """One array per layer, (2, slots, kv_heads, blocks, BLOCK * head_dim), growable in slots and blocks.

    ``mask`` (slots, blocks * BLOCK) is 0 where a slot holds a position and -inf elsewhere.
    """

    def __init__(self, layers: int, heads: Heads, dtype: FloatType) -> None:
        self._heads, self._dtype = heads, dtype
        self.layers = [self._empty(0, 0) for _ in range(layers)]
        self.mask: Array = np.zeros((0, 0), dtype=self._dtype)

    def _empty(self, slots: int, blocks: int) -> Array:
        h = self._heads
        return np.zeros((2, slots, h.kv_heads, blocks, BLOCK * h.head_dim), dtype=self._dtype)

    def reserve(self, slots: int, positions: int) -> None:
        """Make room for so many slots and positions; what is there stays."""
        had_slots, had_blocks = self.mask.shape[0], self.mask.shape[1] // BLOCK
        blocks = _blocks(positions)
        if slots <= had_slots and blocks <= had_blocks:
            return
        # Grow in steps, so that a growing batch is not copied again for every slot.
        slots = max(slots, had_slots + had_slots // 2) if slots > had_slots else had_slots
        blocks = max(blocks, had_blocks + had_blocks // 4) if blocks > had_blocks else had_blocks
        for index, old in enumerate(self.layers):
            new = self._empty(slots, blocks)
            new[:, :had_slots, :, :had_blocks] = old
            self.layers[index] = new
        mask = np.full((slots, blocks * BLOCK), -np.inf, dtype=self._dtype)
        mask[:had_slots, : had_blocks * BLOCK] = self.mask
        self.mask = mask

    def load(self, slot: int, layers: Sequence[Array], length: int) -> None:
        """Fill a slot with ``length`` positions out of (2, kv_heads, blocks, BLOCK * head_dim) per layer."""
        blocks = _blocks(length)
        for target, source in zip(self.layers, layers, strict=True):
            target[:, slot, :, :blocks] = source[:, :, :blocks]
        self.mask[slot, :length] = 0
        self.mask[slot, length:] = -np.inf

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of one slot over another."""
        blocks = _blocks(length)
        for array in self.layers:
            array[:, target, :, :blocks] = array[:, source, :, :blocks]
        self.mask[target] = self.mask[source]


def _blocks(positions: int) -> int:
    return -(-positions // BLOCK)


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
        """The longest remembered run of blocks from the prompt's start, each (layers, 2, kv_heads, BLOCK * head_dim)."""
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
