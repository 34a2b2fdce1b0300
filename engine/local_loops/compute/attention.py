"""Causal attention of one sequence, in blocks of queries against blocks of keys, forward and backward.

A block of :data:`BLOCK` queries sees the key blocks up to its own, so memory is heads x BLOCK x L instead of heads x
L x L and half of the square is never computed. Every product has the shape of one block pair and blocks are added
from the first to the last, so a position's result depends to the last bit on what comes before it and on nothing
else; :mod:`.decoder` adds in the same order.

Keys and values of a sequence are kept as (2, kv_heads, blocks, BLOCK * head_dim): a key block is stored as
(head_dim, BLOCK), the order in which scores are computed fastest and always by the same kernel, a value block as
(BLOCK, head_dim). What lies past the sequence's end is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.local_loops.compute.arrays import Array

BLOCK = 64


@dataclass(frozen=True, slots=True)
class Heads:
    """Head counts and width; ``group`` query heads share one key/value head."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


def split(heads: Heads, qkv: Array) -> tuple[Array, Array]:
    """Rows (L, q+k+v) of one sequence as :func:`blocked` queries and (2, kv_heads, blocks, BLOCK * head_dim)."""
    length, width = qkv.shape[0], heads.head_dim
    blocks = _padded(length) // BLOCK
    padded = np.zeros((2, heads.kv_heads, blocks * BLOCK, width), dtype=qkv.dtype)
    rows = qkv[:, heads.q_width :].reshape(length, 2, heads.kv_heads, width)
    padded[:, :, :length] = rows.transpose(1, 2, 0, 3)
    stored = padded.reshape(2, heads.kv_heads, blocks, BLOCK, width)
    keys = np.ascontiguousarray(stored[0].swapaxes(-1, -2))
    stored[0] = keys.reshape(stored[0].shape)
    return blocked(heads, qkv[:, : heads.q_width]), stored.reshape(2, heads.kv_heads, blocks, BLOCK * width)


def key_blocks(kv: Array, width: int) -> Array:
    """(…, blocks, head_dim, BLOCK) keys of (2, …, blocks, BLOCK * head_dim)."""
    return kv[0].reshape(*kv.shape[1:-1], width, BLOCK)


def value_blocks(kv: Array, width: int) -> Array:
    """(…, blocks, BLOCK, head_dim) values of (2, …, blocks, BLOCK * head_dim)."""
    return kv[1].reshape(*kv.shape[1:-1], BLOCK, width)


def blocked(heads: Heads, rows: Array) -> Array:
    """Rows (L, heads * head_dim) as (blocks, kv_heads, group * BLOCK, head_dim), zero past L."""
    length = rows.shape[0]
    blocks = _padded(length) // BLOCK
    source = np.zeros((blocks * BLOCK, heads.q_width), dtype=rows.dtype)
    source[:length] = rows
    shaped = source.reshape(blocks, BLOCK, heads.kv_heads, heads.group, heads.head_dim).transpose(
        0, 2, 3, 1, 4
    )
    return np.ascontiguousarray(shaped).reshape(blocks, heads.kv_heads, heads.group * BLOCK, heads.head_dim)


def unblocked(heads: Heads, blocks: Array, out: Array) -> None:
    """Undo :func:`blocked` into ``out`` (L, heads * head_dim)."""
    count = blocks.shape[0]
    shaped = blocks.reshape(count, heads.kv_heads, heads.group, BLOCK, heads.head_dim).transpose(
        0, 3, 1, 2, 4
    )
    out[:] = shaped.reshape(count * BLOCK, heads.q_width)[: out.shape[0]]


def attend(q: Array, kv: Array, first_block: int = 0) -> tuple[Array, Array]:
    """Attention outputs, blocked like ``q``, and log-sum-exps (blocks, kv_heads, group * BLOCK, 1).

    ``q`` may begin at block ``first_block`` of the sequence that ``kv`` holds from its start.
    """
    keys, values = key_blocks(kv, q.shape[-1]), value_blocks(kv, q.shape[-1])
    out = np.empty_like(q)
    sums = np.empty((*q.shape[:3], 1), dtype=q.dtype)
    for index in range(q.shape[0]):
        seen = first_block + index + 1
        scores = _scores(q[index], keys[:, :seen])
        peak = scores.max(axis=-1, keepdims=True).max(axis=1, keepdims=True)
        scores -= peak
        np.exp(scores, out=scores)
        total = add_blocks(scores.sum(axis=-1, keepdims=True), 1)
        np.divide(add_blocks(scores @ values[:, :seen], 1), total, out=out[index])
        np.log(total, out=total)
        np.add(total, peak[:, 0], out=sums[index])
    return out, sums


def attend_backward(
    q: Array, kv: Array, *, out: Array, sums: Array, dout: Array
) -> tuple[Array, Array, Array]:
    """Gradients for q (blocked), k and v (kv_heads, blocks, BLOCK, head_dim).

    ``out`` and ``sums`` are what :func:`attend` returned, ``dout`` is blocked like ``q``.
    """
    keys, values = key_blocks(kv, q.shape[-1]), value_blocks(kv, q.shape[-1])
    dq, dk, dv = np.empty_like(q), np.zeros_like(values), np.zeros_like(values)
    delta = (dout * out).sum(axis=-1, keepdims=True)
    for index in range(q.shape[0]):
        seen = index + 1
        p = _scores(q[index], keys[:, :seen])
        p -= sums[index][:, None]
        np.exp(p, out=p)
        dout_here = dout[index][:, None]
        dv[:, :seen] += p.swapaxes(-1, -2) @ dout_here
        ds = dout_here @ values[:, :seen].swapaxes(-1, -2)
        ds -= delta[index][:, None]
        ds *= p
        np.sum(ds @ keys[:, :seen].swapaxes(-1, -2), axis=1, out=dq[index])
        dk[:, :seen] += ds.swapaxes(-1, -2) @ q[index][:, None]
    return dq, dk, dv


def add_blocks(parts: Array, axis: int) -> Array:
    """The sum over ``axis``, from the first block to the last, in place of the first."""
    before = (slice(None),) * axis
    total = parts[(*before, 0)]
    for block in range(1, parts.shape[axis]):
        total += parts[(*before, block)]
    return total


def join(heads: Heads, dq: Array, dk: Array, dv: Array, out: Array) -> None:
    """Undo :func:`split` into ``out`` (L, q+k+v)."""
    length = out.shape[0]
    unblocked(heads, dq, out[:, : heads.q_width])
    for place, gradient in enumerate((dk, dv)):
        start = heads.q_width + place * heads.kv_width
        rows = gradient.reshape(heads.kv_heads, -1, heads.head_dim)[:, :length].transpose(1, 0, 2)
        out[:, start : start + heads.kv_width] = rows.reshape(length, heads.kv_width)


def _padded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


_FUTURE = np.triu(np.full((BLOCK, BLOCK), -np.inf), k=1)
_MASKS = {np.dtype(kind): _FUTURE.astype(kind) for kind in (np.float32, np.float64)}


def _scores(q: Array, keys: Array) -> Array:
    """Scores (kv_heads, blocks, group * BLOCK, BLOCK) of one block of queries; the last key block is its own."""
    scores = q[:, None] @ keys
    own = scores[:, -1].reshape(scores.shape[0], -1, BLOCK, BLOCK)
    own += _MASKS[scores.dtype]
    return scores
