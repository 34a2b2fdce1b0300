"""One pass over a batch: its datums checked, scored and, for ``forward_backward``, differentiated.

A pass changes nothing: it is given an adapter and answers with scores and gradients. So it can be computed in a process
of its own (see :mod:`.pass_worker`), and computed again when that process is lost.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.local_loops.answers import encode_result, finite_metrics
from engine.local_loops.compute.interface import Backend, RowScores
from engine.local_loops.losses import DatumError, Loss, PreparedDatum, build_loss, mean_loss
from engine.local_loops.pass_messages import Pass, PassResult

#: Parameters times tokens of one slice: a few tenths of a second of one core.
SLICE_WORK = 2_000_000_000
MIN_SLICE_TOKENS = 128
#: Tokens that are read from the wire in about the time that one is computed.
PREPARED_PER_COMPUTED = 10


def compute(wanted: Pass, backend: Backend, weights: Any) -> Generator[None, None, PassResult]:
    """Compute a pass, yielding between slices. ``weights`` are those of its adapter.

    Raises LossConfigError and DatumError for what the caller did wrong, before anything is computed.
    """
    loss, data = yield from _prepare(wanted, backend.card.vocab_size)
    # A large model gets smaller slices, so that other runs wait about as long for one.
    bound = min(wanted.slice_tokens, max(MIN_SLICE_TOKENS, SLICE_WORK // backend.card.parameters))
    gradients = backend.zero_gradients(wanted.adapter) if wanted.backward else None
    scores: list[RowScores] = []
    for part in _parts(data, loss.rows_together, bound):
        members = data[part.start : part.stop]

        def gradient(indices: Sequence[int], rows: Sequence[RowScores], members=members) -> Sequence[Any]:
            chosen = [members[index] for index in indices]
            return loss.evaluate(chosen, [row.logprobs for row in rows]).gradients

        rows = [datum.row for datum in members]
        if gradients is None:
            scores += backend.score(weights, rows, top_k=wanted.top_k)
        else:
            scores += backend.accumulate(
                weights,
                wanted.adapter,
                rows,
                gradient,
                gradients,
                rows_together=loss.rows_together,
                top_k=wanted.top_k,
            )
        yield
    result = loss.evaluate(data, [row.logprobs for row in scores])
    scored = {
        "loss": mean_loss(result),
        "loss_fn_output_type": loss.name,
        "loss_fn_outputs": _outputs(data, scores, wanted.top_k),
        "metrics": finite_metrics({"loss": mean_loss(result), **result.metrics}),
    }
    normalise = not loss.config.skip_token_normalization
    return PassResult(encode_result(scored), gradients, result.tokens, normalise)


def _prepare(wanted: Pass, vocabulary: int) -> Generator[None, None, tuple[Loss, list[PreparedDatum]]]:
    """Check a batch as a whole before any of it is computed."""
    loss = build_loss(wanted.loss_fn, wanted.loss_fn_config)
    data: list[PreparedDatum] = []
    unyielded = 0
    for index, raw in enumerate(wanted.data):
        try:
            data.append(_datum(loss, raw, wanted.context, vocabulary))
        except DatumError as error:
            raise DatumError(f"data[{index}]: {error}") from error
        unyielded += len(data[-1].row.tokens)
        if unyielded > wanted.slice_tokens * PREPARED_PER_COMPUTED:
            unyielded = 0
            yield
    loss.check_batch(data)
    return loss, data


def _datum(loss: Loss, raw: Any, context: int, vocabulary: int) -> PreparedDatum:
    tokens = _tokens_of(raw)
    if len(tokens) > context:
        raise DatumError(f"{len(tokens)} tokens exceed the run's context of {context}.")
    inputs = raw.get("loss_fn_inputs") or {}
    if not isinstance(inputs, Mapping):
        raise DatumError("loss_fn_inputs must be an object of tensors.")
    datum = loss.prepare(tokens, inputs)
    for name, ids in (("model_input", datum.row.tokens), ("target_tokens", datum.row.targets)):
        if ids.size and (int(ids.max()) >= vocabulary or (name == "model_input" and int(ids.min()) < 0)):
            raise DatumError(f"{name} holds ids outside the model's vocabulary of {vocabulary}.")
    return datum


def _tokens_of(raw: Any) -> list[int]:
    """The token ids of a datum's text chunks."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("model_input"), Mapping):
        raise DatumError("a datum must be an object with a model_input.")
    tokens: list[int] = []
    for chunk in raw["model_input"].get("chunks") or []:
        kind = chunk.get("type") if isinstance(chunk, Mapping) else None
        if kind != "encoded_text":
            raise DatumError(
                f"this local server trains on text only; model_input has a chunk of type {kind!r}."
            )
        ids = chunk.get("tokens")
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise DatumError("model_input holds tokens that are no whole numbers.")
        tokens += ids
    return tokens


def _parts(data: Sequence[PreparedDatum], together: int, bound: int) -> Iterator[range]:
    """Consecutive rows whose tokens fill one slice; rows that belong together never part."""
    start = tokens = 0
    for at in range(0, len(data), together):
        size = sum(len(datum.row.tokens) for datum in data[at : at + together])
        if at > start and tokens + size > bound:
            yield range(start, at)
            start, tokens = at, 0
        tokens += size
    if start < len(data):
        yield range(start, len(data))


def _outputs(data: Sequence[PreparedDatum], scores: Sequence[RowScores], top_k: int) -> list[dict[str, Any]]:
    """Per datum its log-probabilities, as the datum is aligned."""
    outputs: list[dict[str, Any]] = []
    for datum, row in zip(data, scores, strict=True):
        output = {"logprobs": _tensor(datum.output(row.logprobs))}
        if top_k and row.top_ids is not None and row.top_logprobs is not None:
            inactive = ~(datum.active if datum.active.ndim == 1 else datum.active.any(axis=1))
            values, ids = row.top_logprobs.copy(), row.top_ids.copy()
            values[inactive], ids[inactive] = np.nan, -1
            output["top_k_logprobs"] = _tensor(datum.realign(values, math.nan))
            output["top_k_tokens"] = _tensor(datum.realign(ids, -1))
        outputs.append(output)
    return outputs


def _tensor(values: npt.NDArray[Any]) -> dict[str, Any]:
    """An array on the wire: flat data, null for NaN."""
    flat = values.reshape(-1).tolist()
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            flat = [value if math.isfinite(value) else None for value in flat]
        return {"data": flat, "dtype": "float32", "shape": list(values.shape)}
    return {"data": flat, "dtype": "int64", "shape": list(values.shape)}
