"""The weights as the computation wants them, and how a LoRA adapter enters and leaves them.

Three things are folded into the stored matrices once, so that no step pays for them:

* q, k, v and gate, up are one matrix each, stored (in, out);
* the weight of an RMSNorm scales the rows of the matrices that follow it, so the norm itself is only ``x / rms(x)``;
* the columns of q and k are reordered so that a rotary pair (i, i + head_dim/2) is adjacent: a rotation is then one
  complex multiplication. Scores do not change, since q and k are reordered alike. q also carries 1/sqrt(head_dim).

A :class:`Projection` remembers what was folded for one LoRA target, so that an adapter in PEFT's own terms can be
merged, and its gradient be expressed in those terms again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.arrays import Array, FloatType
from engine.local_loops.compute.interface import Adapter, Gradients
from engine.local_loops.compute.model_files import ModelConfig, ModelError, TensorFiles

PREFIX = "base_model.model.model.layers"


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Matrices are (in, out); ``q_norm``/``k_norm`` are (head_dim,) or None."""

    qkv: Array
    o: Array
    gate_up: Array
    down: Array
    qkv_bias: Array | None
    o_bias: Array | None
    q_norm: Array | None
    k_norm: Array | None


@dataclass(frozen=True, slots=True)
class Projection:
    """Where one LoRA target lives: a matrix of :class:`LayerWeights`, its columns, and what is folded in."""

    name: str
    matrix: str
    columns: slice
    inputs: int
    outputs: int
    input_scale: Array | None
    output_scale: float
    order: npt.NDArray[np.intp] | None

    def factors(self, adapter: Adapter) -> tuple[Array, Array]:
        """(A', B') with the fold applied: the matrix gains ``(B' @ A').T``; A' is (rank, in), B' (out, rank)."""
        a, b = adapter.tensors[f"{self.name}.lora_A.weight"], adapter.tensors[f"{self.name}.lora_B.weight"]
        scale = b.dtype.type(self.output_scale * adapter.alpha / adapter.rank)
        return (
            a if self.input_scale is None else a * self.input_scale,
            (b if self.order is None else b[self.order]) * scale,
        )

    def accumulate(self, adapter: Adapter, x: Array, dy: Array, into: Gradients) -> None:
        """Add dL/dA and dL/dB, given the folded matrix's input (T, in) and output gradient (T, out).

        With W' = ... + (B' A').T: dA' = (dy B').T x and dB' = dy.T (x A'.T); dW' itself is never formed.
        """
        a, b = self.factors(adapter)
        scale = b.dtype.type(self.output_scale * adapter.alpha / adapter.rank)
        da = (dy @ b).T @ x
        db = (dy.T @ (x @ a.T)) * scale
        into[f"{self.name}.lora_A.weight"] += da if self.input_scale is None else da * self.input_scale
        if self.order is None:
            into[f"{self.name}.lora_B.weight"] += db
        else:
            into[f"{self.name}.lora_B.weight"][self.order] += db


@dataclass(frozen=True, slots=True)
class Weights:
    """Effective weights of the whole model. ``embedding`` is (V, d), ``head`` (d, V) with the final norm folded in."""

    layers: tuple[LayerWeights, ...]
    embedding: Array
    head: Array


@dataclass(frozen=True, slots=True)
class Layout:
    """The base weights and the LoRA targets of every layer."""

    config: ModelConfig
    base: Weights
    projections: tuple[tuple[Projection, ...], ...]
    parameters: int

    def merged(self, adapter: Adapter | None) -> Weights:
        """Effective weights; without an adapter the base itself, otherwise copies of what the adapter changes."""
        if adapter is None:
            return self.base
        layers = []
        for layer, projections in zip(self.base.layers, self.projections, strict=True):
            matrices = {name: getattr(layer, name).copy() for name in ("qkv", "o", "gate_up", "down")}
            for projection in projections:
                a, b = projection.factors(adapter)
                matrices[projection.matrix][:, projection.columns] += a.T @ b.T
            layers.append(replace(layer, **matrices))
        return replace(self.base, layers=tuple(layers))

    def adapter_shapes(self, rank: int) -> dict[str, tuple[int, int]]:
        """Names and shapes of an adapter's tensors."""
        shapes: dict[str, tuple[int, int]] = {}
        for projection in (p for layer in self.projections for p in layer):
            shapes[f"{projection.name}.lora_A.weight"] = (rank, projection.inputs)
            shapes[f"{projection.name}.lora_B.weight"] = (projection.outputs, rank)
        return shapes


def read_layout(config: ModelConfig, files: TensorFiles, dtype: FloatType) -> Layout:
    """Read all weights of a model and fold them."""
    reader = _Reader(config, files, dtype)
    layers, projections = [], []
    for index in range(config.layers):
        weights, targets = reader.layer(index)
        layers.append(weights)
        projections.append(targets)
    embedding = reader.read("model.embed_tokens.weight", config.vocab_size, config.hidden)
    final_norm = reader.read("model.norm.weight", config.hidden)
    head = embedding
    # Some files keep the tied matrix under both names, others only one; config.json decides.
    if not config.tied:
        head = reader.read("lm_head.weight", config.vocab_size, config.hidden)
    folded = np.ascontiguousarray((head * final_norm).T)
    return Layout(config, Weights(tuple(layers), embedding, folded), tuple(projections), reader.parameters)


class _Reader:
    def __init__(self, config: ModelConfig, files: TensorFiles, dtype: FloatType) -> None:
        self.config, self.files, self.dtype = config, files, dtype
        self.parameters = 0
        half = np.arange(config.head_dim).reshape(2, -1)
        #: Position j of a reordered head holds element pairs[j] of the stored one.
        self.pairs = half.T.reshape(-1)

    def read(self, name: str, *shape: int) -> Array:
        array = self.files.read(name, shape, self.dtype)
        self.parameters += array.size
        return array

    def _order(self, heads: int) -> npt.NDArray[np.intp]:
        starts = np.arange(heads)[:, None] * self.config.head_dim
        return (starts + self.pairs).reshape(-1).astype(np.intp)

    def layer(self, index: int) -> tuple[LayerWeights, tuple[Projection, ...]]:
        c = self.config
        d, q_out, kv_out, ff = c.hidden, c.heads * c.head_dim, c.kv_heads * c.head_dim, c.feed_forward
        root = f"model.layers.{index}"
        first = self.read(f"{root}.input_layernorm.weight", d)
        second = self.read(f"{root}.post_attention_layernorm.weight", d)
        # 1/sqrt(head_dim) enters through q's matrix, or through q's norm where there is one.
        scale = float(c.head_dim) ** -0.5
        q_scale = 1.0 if c.qk_norm else scale
        q_order, k_order = self._order(c.heads), self._order(c.kv_heads)
        parts = (
            ("self_attn.q_proj", "qkv", 0, d, q_out, first, q_scale, q_order),
            ("self_attn.k_proj", "qkv", q_out, d, kv_out, first, 1.0, k_order),
            ("self_attn.v_proj", "qkv", q_out + kv_out, d, kv_out, first, 1.0, None),
            ("self_attn.o_proj", "o", 0, q_out, d, None, 1.0, None),
            ("mlp.gate_proj", "gate_up", 0, d, ff, second, 1.0, None),
            ("mlp.up_proj", "gate_up", ff, d, ff, second, 1.0, None),
            ("mlp.down_proj", "down", 0, ff, d, None, 1.0, None),
        )
        widths = {"qkv": (d, q_out + 2 * kv_out), "o": (q_out, d), "gate_up": (d, 2 * ff), "down": (ff, d)}
        matrices = {name: np.empty(shape, dtype=self.dtype) for name, shape in widths.items()}
        biases = {name: np.zeros(widths[name][1], dtype=self.dtype) for name in ("qkv", "o")}
        projections = []
        for name, matrix, start, inputs, outputs, input_scale, output_scale, order in parts:
            columns = slice(start, start + outputs)
            stored = self.read(f"{root}.{name}.weight", outputs, inputs)
            stored = stored if order is None else stored[order]
            stored = stored if input_scale is None else stored * input_scale
            matrices[matrix][:, columns] = (stored * self.dtype.type(output_scale)).T
            bias = f"{root}.{name}.bias"
            if self._has_bias(name, bias):
                values = self.read(bias, outputs)
                biases[matrix][columns] = (values if order is None else values[order]) * output_scale
            projections.append(
                Projection(
                    f"{PREFIX}.{index}.{name}",
                    matrix,
                    columns,
                    inputs,
                    outputs,
                    input_scale,
                    output_scale,
                    order,
                )
            )
        norms: list[Array | None] = [None, None]
        if c.qk_norm:
            norms[0] = self.read(f"{root}.self_attn.q_norm.weight", c.head_dim)[self.pairs] * self.dtype.type(
                scale
            )
            norms[1] = self.read(f"{root}.self_attn.k_norm.weight", c.head_dim)[self.pairs]
        o_bias = f"{root}.self_attn.o_proj.bias"
        layer = LayerWeights(
            **matrices,
            qkv_bias=biases["qkv"] if c.attention_bias else None,
            o_bias=biases["o"] if c.attention_bias and o_bias in self.files else None,
            q_norm=norms[0],
            k_norm=norms[1],
        )
        return layer, tuple(projections)

    def _has_bias(self, name: str, bias: str) -> bool:
        attention = name.startswith("self_attn.")
        # Qwen2 has biases on q, k and v alone; Llama's and Qwen3's attention_bias covers o too.
        expected = (
            self.config.attention_bias
            and attention
            and not (name.endswith("o_proj") and self.config.architecture == "Qwen2ForCausalLM")
        )
        if bias in self.files and not expected:
            raise ModelError(
                f"{self.files.directory}: {bias} is there, but config.json says there are no such biases."
            )
        return expected
