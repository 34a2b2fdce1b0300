"""One optimizer step of an RL loss, through the SDK's training client.

Nothing here holds up the event loop for a large batch: datums are made in a thread, requests are encoded on the client's
own loop (``engine.loops.own_loop``), and the logprobs that come back are compared in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.loops.datums import TrainingDatum, wire_datum
from engine.loops.divergence import divergence_metrics
from engine.loops.errors import LoopsUnavailable, explain

#: A request ends with the datum that brings it to so many tokens: about a megabyte. Its JSON is written in one piece that
#: no other thread can interrupt, 30 ms for a megabyte. Gradients add up over requests, their normalisation comes with the
#: optimizer step: how a batch is cut changes nothing.
REQUEST_TOKENS = 40_000


@dataclass(slots=True)
class TrainResult:
    """What one optimizer step reported: the batch's loss and all metrics (losses, optimizer, divergence)."""

    loss: float
    metrics: dict[str, float] = field(default_factory=dict)


async def train_policy(
    trainer: Any,
    url: str | None,
    batches: Sequence[Sequence[TrainingDatum]],
    *,
    loss: str,
    loss_config: Mapping[str, Any] | None,
    adam: Mapping[str, float],
    behind: int | None = None,
) -> TrainResult:
    """One optimizer step over all batches; see ``LoopsSession.train``. ``trainer``: the SDK's training client."""
    from baseten.loops import AdamParams

    requests = [request for batch in batches for request in cut(batch)]
    try:
        pending = [
            await trainer.forward_backward_async(
                data=await asyncio.to_thread(_wire, rows),
                loss_fn=loss,
                loss_fn_config=dict(loss_config) if loss_config else None,
            )
            for rows in requests
        ]
        stepping = await trainer.optim_step_async(AdamParams(**adam))
        outputs = [await future.result_async() for future in pending]
        stepped = await stepping.result_async()
    except Exception as error:
        raise LoopsUnavailable(explain(error, "training", url)) from error
    result = _averaged(requests, outputs)
    result.metrics.update({f"optim/{key}": value for key, value in (stepped.metrics or {}).items()})
    rows = [row for request in requests for row in request]
    scored = [row.get("logprobs") for output in outputs for row in output.loss_fn_outputs]
    if len(scored) == len(rows) and all(entry is not None for entry in scored):
        try:
            result.metrics.update(await asyncio.to_thread(divergence_metrics, rows, scored, behind))
        except ValueError as error:  # rows not aligned: the numbers would be wrong, so there are none
            raise LoopsUnavailable(f"the trainer's logprobs do not fit the batch: {error}") from error
    return result


def cut(batch: Sequence[TrainingDatum], most: int = REQUEST_TOKENS) -> Iterator[Sequence[TrainingDatum]]:
    """The batch in order, in pieces that end with the datum that brings them to ``most`` tokens."""
    begin = tokens = 0
    for end, datum in enumerate(batch, start=1):
        tokens += len(datum.tokens)
        if tokens >= most or end == len(batch):
            yield batch[begin:end]
            begin, tokens = end, 0


def _wire(rows: Sequence[TrainingDatum]) -> list[Any]:
    return [wire_datum(row) for row in rows]


def _averaged(requests: Sequence[Sequence[TrainingDatum]], outputs: Sequence[Any]) -> TrainResult:
    """Loss and metrics over all datums, from the means over each request's."""
    result = TrainResult(0.0)
    total = sum(map(len, requests))
    for request, output in zip(requests, outputs, strict=True):
        share = len(request) / total
        result.loss += share * output.loss
        for key, value in output.metrics.items():
            result.metrics[f"train/{key}"] = result.metrics.get(f"train/{key}", 0.0) + share * value
    return result
