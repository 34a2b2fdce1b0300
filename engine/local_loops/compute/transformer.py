"""The decoder stack on packed sequences: forward, with what the backward pass needs, and backward.

Sequences lie one after another in a (T, d) array, without padding between them; only at the end are there rows of
zeros, as many as the :class:`~.gemm.RowRule` wants. Attention is computed sequence by sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engine.local_loops.compute import attention
from engine.local_loops.compute.arrays import Array, Complex, FloatType
from engine.local_loops.compute.attention import Heads
from engine.local_loops.compute.gemm import RowRule
from engine.local_loops.compute.interface import Adapter, Gradients, IntArray
from engine.local_loops.compute.layout import LayerWeights, Layout, Projection, Weights
from engine.local_loops.compute.rotation import Rotation


@dataclass(frozen=True, slots=True)
class Span:
    """One sequence among the packed rows: where it starts, its length, and the position of its first token.

    A sequence whose ``offset`` is not 0 continues one whose keys and values the sink already holds.
    """

    start: int
    length: int
    offset: int = 0


class KeyValueSink(Protocol):
    """Takes the keys and values of new positions and hands back those of the whole sequence."""

    def extend(self, layer: int, span: int, kv: Array) -> Array:
        """Blocks (2, kv_heads, blocks, BLOCK * head_dim) of the new positions; returns those from position 0 on."""
        ...


@dataclass(slots=True)
class LayerTape:
    """What one layer's backward pass needs."""

    x1: Array
    r1: Array
    qkv: Array
    q_hat: Array | None
    q_r: Array | None
    attended: Array
    blocks: list[tuple[Array, Array]]
    x2: Array
    r2: Array
    gate_up: Array


@dataclass(slots=True)
class Tape:
    """Saved activations of a forward pass, layer by layer."""

    spans: Sequence[Span]
    factors: Complex
    layers: list[LayerTape] = field(default_factory=list)
    final_r: Array | None = None


class Transformer:
    """The computation of one base model; weights come with every call."""

    def __init__(self, layout: Layout, rule: RowRule, dtype: FloatType) -> None:
        c = layout.config
        self.layout, self.rule, self.dtype = layout, rule, dtype
        self.heads = Heads(c.heads, c.kv_heads, c.head_dim)
        self.rotation = Rotation(c, dtype)
        self.eps = c.norm_eps

    # -- pieces shared with the decoder ----------------------------------------------------------------------

    def normalise(self, x: Array, out: Array | None = None) -> tuple[Array, Array]:
        """x / rms(x) per row (the norm's weight lives in the next matrix), and 1 / rms as (T, 1)."""
        r = np.vecdot(x, x)[..., None]
        r *= 1.0 / x.shape[-1]
        r += self.eps
        np.sqrt(r, out=r)
        np.reciprocal(r, out=r)
        return np.multiply(x, r, out=out), r

    def rotate(self, qkv: Array, factors: Complex, *, back: bool = False) -> None:
        """Rotate q and k of (T, q+k+v) rows in place; ``factors`` is (T, head_dim/2)."""
        h = self.heads
        width = h.q_width + h.kv_width
        pairs = qkv.view(self.rotation.dtype)[:, : width // 2]
        # Splitting the last axis never copies, so this multiplies in place.
        shaped = pairs.reshape(pairs.shape[0], h.heads + h.kv_heads, h.head_dim // 2)
        shaped *= (factors.conj() if back else factors)[:, None, :]

    def norm_heads(self, layer: LayerWeights, qkv: Array) -> tuple[Array, Array] | tuple[None, None]:
        """Qwen3's norm of every q and k head, in place. Returns normed heads before the weight, and 1 / rms."""
        if layer.q_norm is None or layer.k_norm is None:
            return None, None
        h = self.heads
        width = h.q_width + h.kv_width
        heads = qkv[:, :width].reshape(qkv.shape[0], h.heads + h.kv_heads, h.head_dim)
        normed, r = self.normalise(heads)
        np.multiply(normed[:, : h.heads], layer.q_norm, out=heads[:, : h.heads])
        np.multiply(normed[:, h.heads :], layer.k_norm, out=heads[:, h.heads :])
        return normed, r

    # -- forward ---------------------------------------------------------------------------------------------

    def forward(
        self,
        weights: Weights,
        tokens: IntArray,
        spans: Sequence[Span],
        *,
        tape: bool = False,
        sink: KeyValueSink | None = None,
    ) -> tuple[Array, Tape]:
        """Final hidden states (T', d), normed; T' is the padded number of rows. The tape is empty unless asked for."""
        rows = self.rule.padded(tokens.shape[0])
        x: Array = np.zeros((rows, self.layout.config.hidden), dtype=self.dtype)
        x[: tokens.shape[0]] = weights.embedding[tokens]
        record = Tape(spans, self._factors(rows, spans))
        with np.errstate(over="ignore"):  # exp(-g) of a very negative gate is inf, and g / inf the right 0
            for index, layer in enumerate(weights.layers):
                x = self._layer(index, layer, x, record, tape=tape, sink=sink)
        hidden, record.final_r = self.normalise(x)
        return hidden, record

    def _factors(self, rows: int, spans: Sequence[Span]) -> Complex:
        table = self.rotation.table(max(span.offset + span.length for span in spans))
        factors = np.ones((rows, table.shape[1]), dtype=self.rotation.dtype)
        for span in spans:
            factors[span.start : span.start + span.length] = table[span.offset : span.offset + span.length]
        return factors

    def _layer(
        self,
        index: int,
        layer: LayerWeights,
        x: Array,
        record: Tape,
        *,
        tape: bool,
        sink: KeyValueSink | None,
    ) -> Array:
        product = self.rule.product
        x1, r1 = self.normalise(x)
        qkv = product(x1, layer.qkv)
        if layer.qkv_bias is not None:
            qkv += layer.qkv_bias
        q_hat, q_r = self.norm_heads(layer, qkv)
        self.rotate(qkv, record.factors)
        attended: Array = np.zeros((x.shape[0], self.heads.q_width), dtype=self.dtype)
        blocks: list[tuple[Array, Array]] = []
        for number, span in enumerate(record.spans):
            rows = slice(span.start, span.start + span.length)
            q, kv = attention.split(self.heads, qkv[rows])
            if sink is not None:
                kv = sink.extend(index, number, kv)
            out, sums = attention.attend(q, kv, span.offset // attention.BLOCK)
            attention.unblocked(self.heads, out, attended[rows])
            if tape:
                blocks.append((out, sums))
        middle = product(attended, layer.o)
        if layer.o_bias is not None:
            middle += layer.o_bias
        middle += x
        x2, r2 = self.normalise(middle)
        gate_up = product(x2, layer.gate_up)
        _, act = swiglu(gate_up)
        result = product(act, layer.down)
        result += middle
        if tape:
            record.layers.append(LayerTape(x1, r1, qkv, q_hat, q_r, attended, blocks, x2, r2, gate_up))
        return result

    # -- backward --------------------------------------------------------------------------------------------

    def backward(
        self, weights: Weights, adapter: Adapter, tape: Tape, dhidden: Array, into: Gradients
    ) -> None:
        """Add the adapter's gradients, given dL/d(final hidden states before the final norm's scaling).

        ``dhidden`` is (T', d), the gradient of what :meth:`forward` returned, already passed through
        :meth:`norm_backward`.
        """
        dx = dhidden
        with np.errstate(over="ignore"):
            for index in range(len(tape.layers) - 1, -1, -1):
                layer, saved = weights.layers[index], tape.layers[index]
                targets = {p.name.rsplit(".", 1)[1]: p for p in self.layout.projections[index]}
                dx = self._layer_backward(
                    layer, saved, targets, adapter=adapter, tape=tape, dx=dx, into=into, last=index == 0
                )

    def norm_backward(self, dy: Array, y: Array, r: Array) -> Array:
        """Gradient through y = x * r, r = 1 / rms(x)."""
        inner = np.vecdot(dy, y)[..., None]
        inner *= 1.0 / y.shape[-1]
        dx = dy - y * inner
        dx *= r
        return dx

    def _layer_backward(
        self,
        layer: LayerWeights,
        saved: LayerTape,
        targets: dict[str, Projection],
        *,
        adapter: Adapter,
        tape: Tape,
        dx: Array,
        into: Gradients,
        last: bool,
    ) -> Array:
        ff = layer.down.shape[0]
        sigmoid, act = swiglu(saved.gate_up)
        targets["down_proj"].accumulate(adapter, act, dx, into)
        dact = dx @ layer.down.T
        gate, up = saved.gate_up[:, :ff], saved.gate_up[:, ff:]
        dgate_up = np.empty_like(saved.gate_up)
        silu = gate * sigmoid
        np.multiply(dact, silu, out=dgate_up[:, ff:])
        # d silu / d gate = sigmoid + silu (1 - sigmoid)
        np.multiply(dact * up, sigmoid + silu * (1 - sigmoid), out=dgate_up[:, :ff])
        targets["gate_proj"].accumulate(adapter, saved.x2, dgate_up[:, :ff], into)
        targets["up_proj"].accumulate(adapter, saved.x2, dgate_up[:, ff:], into)
        dmiddle = self.norm_backward(dgate_up @ layer.gate_up.T, saved.x2, saved.r2)
        dmiddle += dx

        targets["o_proj"].accumulate(adapter, saved.attended, dmiddle, into)
        dattended = dmiddle @ layer.o.T
        dqkv = np.zeros_like(saved.qkv)
        for (out, sums), span in zip(saved.blocks, tape.spans, strict=True):
            rows = slice(span.start, span.start + span.length)
            q, kv = attention.split(self.heads, saved.qkv[rows])
            dout = attention.blocked(self.heads, dattended[rows])
            dq, dk, dv = attention.attend_backward(q, kv, out=out, sums=sums, dout=dout)
            attention.join(self.heads, dq, dk, dv, dqkv[rows])
        self.rotate(dqkv, tape.factors, back=True)
        self._norm_heads_backward(layer, saved, dqkv)
        for name in ("q_proj", "k_proj", "v_proj"):
            targets[name].accumulate(adapter, saved.x1, dqkv[:, targets[name].columns], into)
        if last:
            return dmiddle  # nothing below the first layer is trained
        result = self.norm_backward(dqkv @ layer.qkv.T, saved.x1, saved.r1)
        result += dmiddle
        return result

    def _norm_heads_backward(self, layer: LayerWeights, saved: LayerTape, dqkv: Array) -> None:
        if saved.q_hat is None or saved.q_r is None or layer.q_norm is None or layer.k_norm is None:
            return
        h = self.heads
        width = h.q_width + h.kv_width
        dheads = dqkv[:, :width].reshape(saved.q_hat.shape).copy()
        dheads[:, : h.heads] *= layer.q_norm
        dheads[:, h.heads :] *= layer.k_norm
        dqkv[:, :width] = self.norm_backward(dheads, saved.q_hat, saved.q_r).reshape(dqkv.shape[0], width)


def swiglu(gate_up: Array) -> tuple[Array, Array]:
    """sigmoid(gate) and silu(gate) * up, from (T, 2 ff) rows."""
    ff = gate_up.shape[1] // 2
    sigmoid = np.negative(gate_up[:, :ff])
    np.exp(sigmoid, out=sigmoid)
    sigmoid += 1
    np.reciprocal(sigmoid, out=sigmoid)
    act = gate_up[:, :ff] * sigmoid
    act *= gate_up[:, ff:]
    return sigmoid, act
