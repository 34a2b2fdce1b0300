"""Continuous batching over one set of weights.

Whatever else is being decoded, and whoever joined when, a sequence gets the same tokens and log-probabilities to the
last bit: matrix products have independent rows (:mod:`.gemm`), attention runs over blocks of fixed shape whose sums
are added in order, so that blocks beyond a sequence's end add exact zeros, and every completion has its own random
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.local_loops.compute.arrays import Array, Complex
from engine.local_loops.compute.attention import BLOCK, add_blocks, key_blocks, value_blocks
from engine.local_loops.compute.head import Head
from engine.local_loops.compute.interface import (
    DecodeRequest,
    IntArray,
    PromptScores,
    SampledToken,
    SequenceKey,
)
from engine.local_loops.compute.kv_cache import PrefixBlocks, Slots
from engine.local_loops.compute.layout import LayerWeights, Weights
from engine.local_loops.compute.sampling import RowSampling, draw
from engine.local_loops.compute.transformer import Span, Transformer, swiglu

#: Prompt tokens that are prefilled in one pass.
PREFILL_TOKENS = 4096


@dataclass(slots=True)
class _Row:
    key: SequenceKey
    sampling: RowSampling


@dataclass(slots=True)
class _Prompt:
    """A distinct prompt of an admission: who asks for it and what of it is remembered."""

    tokens: list[int]
    requests: list[DecodeRequest]
    keys: list[tuple[int, ...]]
    prefix: list[Array]


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of one step share. Padded row counts, except ``lines``, ``lengths`` and ``mask``."""

    lines: IntArray
    lengths: IntArray
    factors: Complex
    mask: Array
    attended: Array


class _PrefillSink:
    """Gathers the keys and values of the prompts of one pass, in front of them the remembered blocks."""

    def __init__(self, prompts: Sequence[_Prompt]) -> None:
        self._prefixes = [np.stack(p.prefix, axis=3) if p.prefix else None for p in prompts]
        self.gathered: list[list[Array]] = [[] for _ in prompts]

    def extend(self, layer: int, span: int, kv: Array) -> Array:
        prefix = self._prefixes[span]
        if prefix is not None:
            kv = np.concatenate([prefix[layer], kv], axis=2)
        self.gathered[span].append(kv)
        return kv


class NumpyDecoder:
    """See :class:`~.interface.Decoder`.

    Rows 0 .. live-1 of all arrays are the live sequences. Those below ``_awaiting`` have a drawn token that has not
    been through the model; the others are newcomers whose next logits are known already. A row that leaves is
    replaced by the last one of its kind.
    """

    def __init__(self, transformer: Transformer, head: Head, weights: Weights) -> None:
        self._model, self._head, self._weights = transformer, head, weights
        config = transformer.layout.config
        self._slots = Slots(config.layers, transformer.heads, transformer.dtype)
        self._prefixes = PrefixBlocks()
        self._rows: list[_Row] = []
        self._index: dict[SequenceKey, int] = {}
        self._awaiting = 0
        self._lengths = np.zeros(0, dtype=np.int64)
        self._tokens = np.zeros(0, dtype=np.int64)
        self._hidden = np.zeros((0, config.hidden), dtype=transformer.dtype)

    @property
    def live(self) -> int:
        return len(self._rows)

    # -- joining ---------------------------------------------------------------------------------------------

    def admit(self, requests: Sequence[DecodeRequest]) -> dict[str, PromptScores]:
        scores: dict[str, PromptScores] = {}
        distinct: dict[tuple[int, ...], list[DecodeRequest]] = {}
        if len({request.request_id for request in requests}) < len(requests):
            raise ValueError("two requests that are admitted together have the same id.")
        for request in requests:
            self._check(request)
            distinct.setdefault(tuple(request.prompt), []).append(request)
        waiting = [
            _Prompt(list(tokens), asked, PrefixBlocks.keys(tokens), []) for tokens, asked in distinct.items()
        ]
        if requests:
            wanted = sum(request.n for request in requests)
            self._reserve(len(self._rows) + wanted, max(len(request.prompt) for request in requests) + 1)
        while waiting:
            now, waiting = self._next_pass(waiting)
            self._prefill(now, scores)
        return scores

    def _check(self, request: DecodeRequest) -> None:
        vocabulary = self._model.layout.config.vocab_size
        if not request.prompt:
            raise ValueError("the prompt is empty; it needs at least one token.")
        if min(request.prompt) < 0 or max(request.prompt) >= vocabulary:
            raise ValueError(f"the prompt holds a token id outside the vocabulary (0 to {vocabulary - 1}).")
        if any(SequenceKey(request.request_id, j) in self._index for j in range(request.n)):
            raise ValueError(f"the request {request.request_id} is already being decoded.")

    def _next_pass(self, waiting: list[_Prompt]) -> tuple[list[_Prompt], list[_Prompt]]:
        """Prompts for the next pass, and the rest: too many tokens, or about to compute a block another one computes."""
        now: list[_Prompt] = []
        later: list[_Prompt] = []
        tokens = 0
        started: set[tuple[int, ...]] = set()
        for prompt in waiting:
            scored = any(request.prompt_logprobs is not None for request in prompt.requests)
            prompt.prefix = [] if scored else self._prefixes.find(prompt.keys)
            missing = prompt.keys[len(prompt.prefix) :]
            size = len(prompt.tokens) - len(prompt.prefix) * BLOCK
            if now and (tokens + size > PREFILL_TOKENS or (missing and not scored and missing[0] in started)):
                later.append(prompt)
                continue
            started.update(missing[:1])
            now.append(prompt)
            tokens += size
        return now, later

    def _prefill(self, prompts: list[_Prompt], scores: dict[str, PromptScores]) -> None:
        spans, start = [], 0
        for prompt in prompts:
            offset = len(prompt.prefix) * BLOCK
            spans.append(Span(start, len(prompt.tokens) - offset, offset))
            start += spans[-1].length
        tokens = np.concatenate(
            [np.array(p.tokens[s.offset :], dtype=np.int64) for p, s in zip(prompts, spans, strict=True)]
        )
        sink = _PrefillSink(prompts)
        hidden, _ = self._model.forward(self._weights, tokens, spans, sink=sink)
        for prompt, span, layers in zip(prompts, spans, sink.gathered, strict=True):
            for number in range(len(prompt.prefix), len(prompt.keys)):
                block = np.stack([layer[:, :, number] for layer in layers])
                self._prefixes.remember(prompt.keys[number], block)
            last = hidden[span.start + span.length - 1]
            for request in prompt.requests:
                if request.prompt_logprobs is not None:
                    own = hidden[span.start : span.start + span.length]
                    scores[request.request_id] = self._score_prompt(
                        prompt.tokens, own, request.prompt_logprobs
                    )
                for j in range(request.n):
                    self._join(SequenceKey(request.request_id, j), request, layers, len(prompt.tokens), last)

    def _join(
        self, key: SequenceKey, request: DecodeRequest, layers: list[Array], length: int, hidden: Array
    ) -> None:
        slot = len(self._rows)
        self._slots.load(slot, layers, length)
        self._lengths[slot] = length
        self._hidden[slot] = hidden
        self._rows.append(_Row(key, RowSampling.of(request, key.index)))
        self._index[key] = slot

    def _reserve(self, slots: int, positions: int) -> None:
        self._slots.reserve(slots, positions)
        room, have = self._slots.mask.shape[0], self._lengths.shape[0]
        if room > have:
            more = room - have
            self._lengths = np.concatenate([self._lengths, np.zeros(more, dtype=np.int64)])
            self._tokens = np.concatenate([self._tokens, np.zeros(more, dtype=np.int64)])
            hidden = np.zeros(
                (self._model.rule.padded(room), self._hidden.shape[1]), dtype=self._hidden.dtype
            )
            hidden[: self._hidden.shape[0]] = self._hidden
            self._hidden = hidden

    def _score_prompt(self, tokens: list[int], hidden: Array, top_k: int) -> PromptScores:
        width = min(top_k, self._model.layout.config.vocab_size)
        targets = np.array(tokens[1:], dtype=np.int64)[:, None]
        values, _, ids, tops = self._head.score(self._weights.head, hidden[:-1], targets, width)
        result = PromptScores(np.concatenate([[np.nan], values[:, 0]]).astype(np.float32))
        if ids is not None and tops is not None:
            result.top_ids = np.concatenate([np.full((1, width), -1, dtype=np.int64), ids])
            result.top_logprobs = np.concatenate([np.full((1, width), np.nan), tops]).astype(np.float32)
        return result

    # -- leaving ---------------------------------------------------------------------------------------------

    def finish(self, keys: Sequence[SequenceKey]) -> None:
        for key in keys:
            hole = self._index.pop(key, None)
            if hole is None:
                continue
            if hole < self._awaiting:
                self._awaiting -= 1
                self._move(self._awaiting, hole)
                hole = self._awaiting
            self._move(len(self._rows) - 1, hole)
            self._rows.pop()

    def _move(self, source: int, target: int) -> None:
        if source == target:
            return
        self._slots.move(source, target, int(self._lengths[source]))
        for array in (self._lengths, self._tokens, self._hidden):
            array[target] = array[source]
        self._rows[target] = self._rows[source]
        self._index[self._rows[target].key] = target

    # -- stepping --------------------------------------------------------------------------------------------

    def step(self) -> list[SampledToken]:
        count = len(self._rows)
        if not count:
            return []
        if self._awaiting:
            self._advance(self._awaiting)
        rows = self._model.rule.padded(count)
        logits = self._model.rule.product(self._hidden[:rows], self._weights.head)[:count]
        tokens, logprobs = draw(logits, [row.sampling for row in self._rows])
        self._tokens[:count] = tokens
        self._awaiting = count
        drawn = zip(self._rows, tokens.tolist(), logprobs.tolist(), strict=True)
        return [SampledToken(row.key, token, logprob) for row, token, logprob in drawn]

    def _advance(self, count: int) -> None:
        """Run the drawn tokens of the first ``count`` rows through the model, into ``_hidden``."""
        model = self._model
        lengths = self._lengths[:count]
        longest = int(lengths.max()) + 1
        self._reserve(count, longest)
        rows = model.rule.padded(count)
        x: Array = np.zeros((rows, self._hidden.shape[1]), dtype=model.dtype)
        x[:count] = self._weights.embedding[self._tokens[:count]]
        table = model.rotation.table(longest)
        factors = np.ones((rows, table.shape[1]), dtype=table.dtype)
        factors[:count] = table[lengths]
        lines = np.arange(count)
        self._slots.mask[lines, lengths] = 0
        blocks = -(-longest // BLOCK)
        mask = self._slots.mask[:count, : blocks * BLOCK].reshape(count, 1, blocks, 1, BLOCK)
        attended: Array = np.zeros((rows, model.heads.q_width), dtype=model.dtype)
        step = _Step(lines, lengths, factors, mask, attended)
        with np.errstate(over="ignore"):
            for layer, cache in zip(self._weights.layers, self._slots.layers, strict=True):
                x = self._layer(layer, cache, x, step)
        model.normalise(x[:count], out=self._hidden[:count])
        self._lengths[:count] += 1

    def _layer(self, layer: LayerWeights, cache: Array, x: Array, step: _Step) -> Array:
        model, product = self._model, self._model.rule.product
        h, count = model.heads, step.lines.shape[0]
        x1, _ = model.normalise(x)
        qkv = product(x1, layer.qkv)
        if layer.qkv_bias is not None:
            qkv += layer.qkv_bias
        model.norm_heads(layer, qkv)
        model.rotate(qkv, step.factors)
        new = qkv[:count, h.q_width :].reshape(count, 2, h.kv_heads, h.head_dim)
        block, place = step.lengths // BLOCK, step.lengths % BLOCK
        keys, values = key_blocks(cache, h.head_dim), value_blocks(cache, h.head_dim)
        keys[step.lines, :, block, :, place] = new[:, 0]
        values[step.lines, :, block, place] = new[:, 1]
        q = qkv[:count, : h.q_width].reshape(count, h.kv_heads, 1, h.group, h.head_dim)
        seen = step.mask.shape[2]
        _attend(q, keys[:count, :, :seen], values[:count, :, :seen], step.mask, step.attended[:count])
        middle = product(step.attended, layer.o)
        if layer.o_bias is not None:
            middle += layer.o_bias
        middle += x
        x2, _ = model.normalise(middle)
        _, act = swiglu(product(x2, layer.gate_up))
        result = product(act, layer.down)
        result += middle
        return result


def _attend(q: Array, keys: Array, values: Array, mask: Array, out: Array) -> None:
    """Attention of one new position per row over its cached ones.

    q (B, kv_heads, 1, group, head_dim), keys (B, kv_heads, blocks, head_dim, BLOCK), values (B, kv_heads, blocks,
    BLOCK, head_dim), mask (B, 1, blocks, 1, BLOCK), out (B, heads * head_dim). Products and sums are those of
    :func:`.attention.attend`, block by block in the same order, so that sampling and training agree as far as the
    BLAS allows; to the last bit where its results do not depend on the number of rows.
    """
    group = q.shape[3]
    if group == 1:
        # One row alone would be a matrix-vector product, which sums in another order.
        q = np.repeat(q, 2, axis=3)
    scores = q @ keys
    scores += mask
    scores -= scores.max(axis=-1, keepdims=True).max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    total = add_blocks(scores.sum(axis=-1, keepdims=True), 2)
    value = add_blocks(scores @ values, 2)
    value /= total
    out[:] = value[:, :, :group].reshape(out.shape)
