"""Do sampler and trainer agree on tokens that are not trained on? Scored by ``forward``, which touches no gradient."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.loops.datums import TrainingDatum, wire_datum
from engine.loops.errors import LoopsUnavailable, explain
from engine.loops.session import LoopsSession


async def divergence(session: LoopsSession, rows: Sequence[TrainingDatum], prefix: str) -> dict[str, float]:
    """The SDK's own divergence metrics of sampled tokens under the trainer's present weights, names after ``prefix``.

    The sampler must have been at those weights, with temperature 1 and nothing cut off.

    Raises:
        LoopsUnavailable: the trainer refused or lost the operation.
    """
    from baseten.loops.rl_metrics import loops_compute_kl_sample_train

    if not rows:
        return {}
    try:
        wire = await asyncio.to_thread(lambda: [wire_datum(row) for row in rows])
        scoring = await session.trainer.forward_async(data=wire, loss_fn="importance_sampling")
        output = await scoring.result_async()
        scored = [row["logprobs"] for row in output.loss_fn_outputs]
        return dict(await asyncio.to_thread(loops_compute_kl_sample_train, wire, scored, prefix=prefix))
    except Exception as error:
        raise LoopsUnavailable(explain(error, "scoring an evaluation's tokens", session.url)) from error
