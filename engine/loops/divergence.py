"""Sampler and trainer on the sampled tokens, as the SDK measures it: over a batch, and apart by the age of its policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from engine.loops.datums import TrainingDatum, WireDatums

#: Told for each age; the SDK's other figures only for the whole batch.
BY_LAG = ("kl_sample_train_k3", "is_ratio_mean", "ess_fraction")


def divergence_metrics(
    rows: Sequence[TrainingDatum], scored: Sequence[Any], lags: Sequence[int]
) -> dict[str, float]:
    """``optim/train-sample-div/…`` and, where ages are told, ``lag/<n>/…``.

    ``scored``: the trainer's logprobs of each row; ``lags``: the age of each in updates, or empty. A microsecond and
    more for each token: call it in a thread. Raises ValueError where the rows are not aligned.
    """
    metrics = _compared(rows, scored)
    for lag in sorted(set(lags)):
        places = [place for place, other in enumerate(lags) if other == lag]
        prefix = f"lag/{lag}/"
        told = _compared([rows[place] for place in places], [scored[place] for place in places], prefix)
        metrics |= {name: value for name, value in told.items() if name.removeprefix(prefix) in BY_LAG}
    return metrics


def _compared(
    rows: Sequence[TrainingDatum], scored: Sequence[Any], prefix: str | None = None
) -> dict[str, float]:
    from baseten.loops.rl_metrics import loops_compute_kl_sample_train

    data = cast(Any, WireDatums(rows))  # all that is asked of it is its length and its datums, once
    named = {} if prefix is None else {"prefix": prefix}
    return dict(loops_compute_kl_sample_train(data, list(scored), **named))
