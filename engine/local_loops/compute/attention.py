"""Causal attention of one sequence, in blocks of queries, forward and backward.

A block of :data:`BLOCK` queries sees the keys up to its own end, so memory is heads x BLOCK x L instead of
heads x L x L, half of the square is never computed, and every product's shape depends on the block's place alone:
what comes before a position decides its result to the last bit, whatever follows it and whatever else is computed.
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


def split(heads: Heads, qkv: Array) -> tuple[Array, Array, Array]:
    """Rows (L, q+k+v) of one sequence as padded blocks.

    q is (blocks, kv_heads, group * BLOCK, head_dim); k and v are (kv_heads, blocks * BLOCK, head_dim), zero past L.
    """
    length = qkv.shape[0]
    keys = qkv[:, heads.q_width :].reshape(length, 2, heads.kv_heads, heads.head_dim)
    padded = np.zeros((2, heads.kv_heads, _padded(length), heads.head_dim), dtype=qkv.dtype)
    padded[:, :, :length] = keys.transpose(1, 2, 0, 3)
    return blocked(heads, qkv[:, : heads.q_width]), padded[0], padded[1]


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


def attend(q: Array, k: Array, v: Array, first_block: int = 0) -> tuple[Array, Array]:
    """Attention outputs, blocked like ``q``, and log-sum-exps (blocks, kv_heads, group * BLOCK, 1).

    ``q`` may begin at block ``first_block`` of the sequence that ``k`` and ``v`` hold from its start.
    """
    out = np.empty_like(q)
    sums = np.empty((*q.shape[:3], 1), dtype=q.dtype)
    for index in range(q.shape[0]):
        scores, v_seen = _scores(q, k, v, index, first_block)
        peak = scores.max(axis=-1, keepdims=True)
        scores -= peak
        np.exp(scores, out=scores)
        total = scores.sum(axis=-1, keepdims=True)
        np.matmul(scores, v_seen, out=out[index])
        out[index] /= total
        np.log(total, out=total)
        np.add(total, peak, out=sums[index])
    return out, sums


def attend_backward(
    q: Array, k: Array, v: Array, *, out: Array, sums: Array, dout: Array
) -> tuple[Array, Array, Array]:
    """Gradients for q (blocked), k and v, given ``dout`` (blocked) and what :func:`attend` returned."""
    dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    delta = (dout * out).sum(axis=-1, keepdims=True)
    for index in range(q.shape[0]):
        p, v_seen = _scores(q, k, v, index, 0)
        p -= sums[index]
        np.exp(p, out=p)
        end = v_seen.shape[1]
        dv[:, :end] += p.swapaxes(-1, -2) @ dout[index]
        ds = dout[index] @ v_seen.swapaxes(-1, -2)
        ds -= delta[index]
        ds *= p
        np.matmul(ds, k[:, :end], out=dq[index])
        dk[:, :end] += ds.swapaxes(-1, -2) @ q[index]
    return dq, dk, dv


def join(heads: Heads, dq: Array, dk: Array, dv: Array, out: Array) -> None:
    """Undo :func:`split` into ``out`` (L, q+k+v)."""
    length = out.shape[0]
    unblocked(heads, dq, out[:, : heads.q_width])
    for place, gradient in enumerate((dk, dv)):
        start = heads.q_width + place * heads.kv_width
        rows = gradient[:, :length].transpose(1, 0, 2).reshape(length, heads.kv_width)
        out[:, start : start + heads.kv_width] = rows


def _padded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


_FUTURE = np.triu(np.full((BLOCK, BLOCK), -np.inf), k=1)
_MASKS = {np.dtype(kind): _FUTURE.astype(kind) for kind in (np.float32, np.float64)}


def _scores(q: Array, k: Array, v: Array, index: int, first_block: int) -> tuple[Array, Array]:
    """Masked scores (kv_heads, group * BLOCK, seen) of one block of queries, and the values it sees."""
    end = (first_block + index + 1) * BLOCK
    scores = q[index] @ k[:, :end].swapaxes(-1, -2)
    kv_heads = scores.shape[0]
    scores.reshape(kv_heads, -1, BLOCK, end)[..., -BLOCK:] += _MASKS[scores.dtype]
    return scores, v[:, :end]
