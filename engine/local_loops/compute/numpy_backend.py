"""The default compute back end: numpy, float32, merged LoRA weights, a backward pass written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.local_loops.compute.arrays import Array, FloatType, as_contract, float_type
from engine.local_loops.compute.decoder import NumpyDecoder
from engine.local_loops.compute.gemm import find_rule
from engine.local_loops.compute.head import Head
from engine.local_loops.compute.interface import (
    Adapter,
    Decoder,
    FloatArray,
    Gradients,
    IntArray,
    LogprobGradient,
    ModelCard,
    RowScores,
    ScoreRow,
)
from engine.local_loops.compute.layout import Layout, Weights, read_layout
from engine.local_loops.compute.model_files import ModelConfig, TensorFiles, read_config
from engine.local_loops.compute.transformer import Span, Tape, Transformer

#: Bytes of saved activations that one micro-batch may take; a single longer sequence is computed all the same.
ACTIVATION_BYTES = 384 * 1024 * 1024
#: Tokens of a micro-batch beyond which larger products are no faster.
MICRO_BATCH_TOKENS = 1024


def load_backend(directory: Path, *, dtype: npt.DTypeLike = np.float32) -> NumpyBackend:
    """Load a model directory; raises :class:`~.model_files.ModelError` with one sentence where it cannot.

    ``dtype`` float64 is for checking gradients; everything is then computed and returned in float64.
    """
    config = read_config(directory)
    kind = float_type(dtype)
    return NumpyBackend(directory, read_layout(config, TensorFiles(directory), kind), kind)


class NumpyBackend:
    """One base model in memory. See :class:`~.interface.Backend` for what the methods promise."""

    def __init__(self, directory: Path, layout: Layout, dtype: FloatType) -> None:
        config = layout.config
        self._layout, self._dtype = layout, dtype
        layer = layout.base.layers[0]
        matrices = (layer.qkv, layer.o, layer.gate_up, layer.down, layout.base.head)
        self.rule = find_rule(((m.shape[0], m.shape[1]) for m in matrices), dtype)
        self._transformer = Transformer(layout, self.rule.loose, dtype)
        self.head = Head(self.rule.loose)
        self.micro_batch_tokens = min(
            MICRO_BATCH_TOKENS, max(1, ACTIVATION_BYTES // self._token_bytes(config))
        )
        self._card = ModelCard(
            directory=directory,
            architecture=config.architecture,
            vocab_size=config.vocab_size,
            max_context=config.max_context,
            eos_token_ids=config.eos_token_ids,
            parameters=layout.parameters,
        )

    @property
    def card(self) -> ModelCard:
        return self._card

    def new_adapter(self, rank: int, seed: int) -> Adapter:
        """A ~ N(0, 1/in) from its own generator, B = 0, alpha = 2 * rank."""
        if rank < 1:
            raise ValueError(f"lora_rank must be at least 1, not {rank}.")
        generator = np.random.default_rng(seed & (2**64 - 1))
        tensors: dict[str, FloatArray] = {}
        for name, shape in self._layout.adapter_shapes(rank).items():
            values = np.zeros(shape)
            if name.endswith("lora_A.weight"):
                values = generator.standard_normal(shape) / np.sqrt(shape[1])
            tensors[name] = as_contract(values.astype(self._dtype))
        return Adapter(rank=rank, alpha=2.0 * rank, tensors=tensors)

    def zero_gradients(self, adapter: Adapter) -> Gradients:
        return {name: np.zeros_like(tensor) for name, tensor in adapter.tensors.items()}

    def weights(self, adapter: Adapter | None) -> Weights:
        """Merged weights: a copy of every matrix that the adapter changes (the base's own without one)."""
        if adapter is not None:
            self._check_adapter(adapter)
        return self._layout.merged(adapter)

    def score(self, weights: Any, rows: Sequence[ScoreRow], *, top_k: int = 0) -> list[RowScores]:
        scores: list[RowScores] = []
        for batch in self._micro_batches(rows, 1):
            scores += self._score(weights, [rows[i] for i in batch], top_k, tape=False)[0]
        return scores

    def accumulate(
        self,
        weights: Any,
        adapter: Adapter,
        rows: Sequence[ScoreRow],
        gradient: LogprobGradient,
        into: Gradients,
        *,
        rows_together: int = 1,
        top_k: int = 0,
    ) -> list[RowScores]:
        self._check_adapter(adapter)
        scores: list[RowScores] = []
        for batch in self._micro_batches(rows, rows_together):
            part = [rows[i] for i in batch]
            results, work = self._score(weights, part, top_k, tape=True)
            slopes = gradient(batch, results)
            scores += results
            self._backward(weights, adapter, part, work, slopes=slopes, into=into)
        return scores

    def decoder(self, weights: Any) -> Decoder:
        return NumpyDecoder(Transformer(self._layout, self.rule, self._dtype), Head(self.rule), weights)

    # -- one micro-batch -------------------------------------------------------------------------------------

    def _score(
        self, weights: Weights, rows: Sequence[ScoreRow], top_k: int, *, tape: bool
    ) -> tuple[list[RowScores], _Work]:
        spans, start = [], 0
        for row in rows:
            spans.append(Span(start, row.tokens.shape[0]))
            start += row.tokens.shape[0]
        tokens = np.concatenate([row.tokens for row in rows])
        hidden, record = self._transformer.forward(weights, tokens, spans, tape=tape)
        width = max(1 if row.targets.ndim == 1 else row.targets.shape[1] for row in rows)
        targets = np.full((start, width), -1, dtype=np.int64)
        for row, span in zip(rows, spans, strict=True):
            own = row.targets[:, None] if row.targets.ndim == 1 else row.targets
            targets[span.start : span.start + span.length, : own.shape[1]] = own
        scored = np.flatnonzero((targets >= 0).any(axis=1))
        top_k = min(top_k, self.card.vocab_size)
        values, sums, ids, tops = self.head.score(weights.head, hidden[scored], targets[scored], top_k)
        logprobs: Array = np.zeros(targets.shape, dtype=self._dtype)
        logprobs[scored] = values
        all_ids: IntArray | None = None
        all_tops: Array | None = None
        if ids is not None and tops is not None:
            all_ids = np.full((start, top_k), -1, dtype=np.int64)
            all_tops = np.zeros((start, top_k), dtype=self._dtype)
            all_ids[scored], all_tops[scored] = ids, tops
        results = []
        for row, span in zip(rows, spans, strict=True):
            part = slice(span.start, span.start + span.length)
            own = logprobs[part, 0] if row.targets.ndim == 1 else logprobs[part, : row.targets.shape[1]]
            results.append(
                RowScores(
                    as_contract(own.copy()),
                    None if all_ids is None else all_ids[part].copy(),
                    None if all_tops is None else as_contract(all_tops[part].copy()),
                )
            )
        return results, _Work(record, hidden, targets, scored, sums)

    def _backward(
        self,
        weights: Weights,
        adapter: Adapter,
        rows: Sequence[ScoreRow],
        work: _Work,
        *,
        slopes: Sequence[FloatArray],
        into: Gradients,
    ) -> None:
        gradient: Array = np.zeros(work.targets.shape, dtype=self._dtype)
        for row, span, slope in zip(rows, work.tape.spans, slopes, strict=True):
            if slope.shape != row.targets.shape:
                raise ValueError(
                    f"a gradient has shape {slope.shape}, but its row's targets {row.targets.shape}."
                )
            own = slope[:, None] if slope.ndim == 1 else slope
            gradient[span.start : span.start + span.length, : own.shape[1]] = own
        gradient[work.targets < 0] = 0
        pulled = (gradient[work.scored] != 0).any(axis=1)
        if not pulled.any():
            return
        at = work.scored[pulled]
        dhidden = np.zeros_like(work.hidden)
        dhidden[at] = self.head.backward(
            weights.head, work.hidden[at], work.targets[at], work.sums[pulled], gradient[at]
        )
        assert work.tape.final_r is not None
        dx = self._transformer.norm_backward(dhidden, work.hidden, work.tape.final_r)
        self._transformer.backward(weights, adapter, work.tape, dx, into)

    # -- checks and sizes ------------------------------------------------------------------------------------

    def _micro_batches(self, rows: Sequence[ScoreRow], together: int) -> Iterator[list[int]]:
        """Consecutive rows, in order, within the token budget; groups of ``together`` rows stay whole."""
        if len(rows) % together:
            raise ValueError(f"{len(rows)} rows cannot be divided into groups of {together}.")
        batch: list[int] = []
        tokens = 0
        for first in range(0, len(rows), together):
            group = range(first, first + together)
            size = sum(self._check_row(rows[i]) for i in group)
            if batch and tokens + size > self.micro_batch_tokens:
                yield batch
                batch, tokens = [], 0
            batch += group
            tokens += size
        if batch:
            yield batch

    def _check_row(self, row: ScoreRow) -> int:
        length = row.tokens.shape[0]
        if length == 0 or row.targets.shape[0] != length:
            raise ValueError(
                f"a row has {length} tokens and {row.targets.shape[0]} targets; both must be equal and not 0."
            )
        if length > self.card.max_context:
            raise ValueError(
                f"a row has {length} tokens, more than the model's context of {self.card.max_context}."
            )
        low, high = int(row.tokens.min()), int(max(row.tokens.max(), row.targets.max()))
        if low < 0 or high >= self.card.vocab_size:
            raise ValueError(
                f"a token id lies outside the vocabulary: {low if low < 0 else high}, "
                f"where 0 to {self.card.vocab_size - 1} is allowed."
            )
        return length

    def _check_adapter(self, adapter: Adapter) -> None:
        expected = self._layout.adapter_shapes(adapter.rank)
        found = {name: tensor.shape for name, tensor in adapter.tensors.items()}
        if found != expected:
            name = next((n for n in [*expected, *found] if found.get(n) != expected.get(n)), "")
            raise ValueError(
                f"the adapter does not fit the model: {name} is {found.get(name)}, not {expected.get(name)}."
            )

    def _token_bytes(self, config: ModelConfig) -> int:
        """Bytes that the backward pass needs of one token, over all layers."""
        heads = config.heads * config.head_dim
        qkv = heads + 2 * config.kv_heads * config.head_dim
        per_layer = (
            2 * config.hidden + qkv * (2 if config.qk_norm else 1) + 2 * heads + 2 * config.feed_forward
        )
        return config.layers * per_layer * self._dtype.itemsize


class _Work:
    """What the backward pass of a micro-batch takes over from its scoring."""

    __slots__ = ("hidden", "scored", "sums", "tape", "targets")

    def __init__(
        self,
        tape: Tape,
        hidden: Array,
        targets: IntArray,
        scored: npt.NDArray[np.intp],
        sums: Array,
    ) -> None:
        self.tape, self.hidden, self.targets, self.scored, self.sums = tape, hidden, targets, scored, sums
