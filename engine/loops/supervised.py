"""Supervised training through a session: cross-entropy on given targets, and the same loss without training."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.loops.errors import LoopsUnavailable, explain
from engine.loops.session import LoopsSession


class Targets(Protocol):
    """A sequence to learn: ``weights[i]`` is the weight of ``tokens[i]`` as a target; equal lengths, at least 2."""

    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def weights(self) -> Sequence[float]: ...


@dataclass(slots=True)
class Supervised:
    """What a pass over sequences found.

    ``loss``: the mean negative log-likelihood of the trained tokens in nats, each counted with its weight.
    ``weight``: the sum of the weights, the loss's denominator. ``tokens``: how many tokens have a weight above 0.
    ``metrics``: what the trainer reported beside.
    """

    loss: float
    weight: float
    tokens: int
    metrics: dict[str, float] = field(default_factory=dict)


async def train_on_targets(
    session: LoopsSession,
    requests: Sequence[Sequence[Targets]],
    *,
    sum_loss: bool,
    adam: Mapping[str, float],
) -> Supervised:
    """One optimizer step over all sequences; the requests are submitted together, their gradients add up.

    ``sum_loss``: the gradient is that of the sum over the trained tokens, not of their mean.

    Raises:
        LoopsUnavailable: the trainer refused or lost an operation. The step may or may not have been applied.
    """
    from baseten.loops import AdamParams

    config = {"skip_token_normalization": True} if sum_loss else None
    try:
        pending = [
            await session.trainer.forward_backward_async(
                data=await asyncio.to_thread(_wire, rows), loss_fn="cross_entropy", loss_fn_config=config
            )
            for rows in requests
            if rows
        ]
        stepping = await session.trainer.optim_step_async(AdamParams(**adam))
        outputs = [await future.result_async() for future in pending]
        stepped = await stepping.result_async()
    except Exception as error:
        raise LoopsUnavailable(explain(error, "training", session.url)) from error
    scored = [row for rows in requests for row in rows]
    result = await asyncio.to_thread(_measured, scored, outputs, session)
    result.metrics.update({f"optim/{key}": value for key, value in (stepped.metrics or {}).items()})
    return result


async def score_targets(session: LoopsSession, rows: Sequence[Targets]) -> Supervised:
    """The loss of sequences under the trainer's present weights; gradients are not touched.

    Raises:
        LoopsUnavailable: the trainer refused or lost the operation.
    """
    try:
        future = await session.trainer.forward_async(
            data=await asyncio.to_thread(_wire, rows), loss_fn="cross_entropy", loss_fn_config=None
        )
        output = await future.result_async()
    except Exception as error:
        raise LoopsUnavailable(explain(error, "scoring", session.url)) from error
    return await asyncio.to_thread(_measured, rows, [output], session)


def _wire(rows: Sequence[Targets]) -> list[Any]:
    return [_datum(row) for row in rows]


def _datum(row: Targets) -> Any:
    """The wire's alignment: position i of targets and weights is predicted from the tokens up to i."""
    from baseten.loops import Datum, ModelInput, TensorData

    tokens, weights = list(row.tokens), list(row.weights)
    length = len(tokens) - 1
    return Datum(
        model_input=ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": TensorData(data=tokens[1:], dtype="int64", shape=[length]),
            "weights": TensorData(data=weights[1:], dtype="float32", shape=[length]),
        },
    )


def _measured(rows: Sequence[Targets], outputs: Sequence[Any], session: LoopsSession) -> Supervised:
    """The loss from the log-probabilities that came back: requests of different sizes have no common mean."""
    scored = [entry.get("logprobs") for output in outputs for entry in output.loss_fn_outputs]
    if len(scored) != len(rows):
        raise LoopsUnavailable(f"the trainer at {session.url} scored {len(scored)} of {len(rows)} sequences")
    total, weight, tokens = 0.0, 0.0, 0
    for row, logprobs in zip(rows, scored, strict=True):
        values = None if logprobs is None else logprobs.data
        if values is None or len(values) != len(row.tokens) - 1:
            raise LoopsUnavailable("the trainer's log-probabilities do not fit the sequences")
        for value, share in zip(values, row.weights[1:], strict=True):
            if share > 0:
                total -= share * float(value)
                weight += share
                tokens += 1
    metrics: dict[str, float] = {}
    for output, rows_of in zip(outputs, (len(output.loss_fn_outputs) for output in outputs), strict=True):
        for key, value in output.metrics.items():
            metrics[f"train/{key}"] = metrics.get(f"train/{key}", 0.0) + value * rows_of / len(rows)
    return Supervised(total / weight if weight else 0.0, weight, tokens, metrics)
