"""Sampler and trainer on the sampled tokens, as the SDK measures it: over a batch, and apart by the age of its policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Told for each age; the SDK's other figures only for the whole batch.
BY_LAG = ("kl_sample_train_k3", "is_ratio_mean", "ess_fraction")


def divergence_metrics(data: list[Any], scored: list[Any], lags: Sequence[int]) -> dict[str, float]:
    """``optim/train-sample-div/…`` and, where ages are told, ``lag/<n>/…``.

    ``data``: wire datums; ``scored``: the trainer's logprobs of each; ``lags``: the age of each in updates, or empty.
    Raises ValueError where the rows are not aligned.
    """
    from baseten.loops.rl_metrics import loops_compute_kl_sample_train

    metrics = dict(loops_compute_kl_sample_train(data, scored))
    for lag in sorted(set(lags)):
        places = [place for place, other in enumerate(lags) if other == lag]
        prefix = f"lag/{lag}/"
        told = loops_compute_kl_sample_train(
            [data[place] for place in places], [scored[place] for place in places], prefix=prefix
        )
        metrics |= {name: value for name, value in told.items() if name.removeprefix(prefix) in BY_LAG}
    return metrics
