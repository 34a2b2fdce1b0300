"""Sampler and trainer on the sampled tokens, as the SDK measures it: over a batch, and apart by the age of its policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from engine.loops.datums import TrainingDatum, WireDatums

#: Told for each age; the SDK's other figures only for the whole batch.
BY_LAG = ("kl_sample_train_k3", "is_ratio_mean", "ess_fraction")


def divergence_metrics(
    rows: Sequence[TrainingDatum], scored: Sequence[Any], behind: int | None = None
) -> dict[str, float]:
    """``optim/train-sample-div/…`` and, where ``behind`` is told, ``lag/<n>/…`` on the replies that are ``n`` updates old.

    ``scored``: the trainer's logprobs of each row; ``behind``: the version of the weights that it scored them with. A
    microsecond and more for each token: call it in a thread. Raises ValueError where the rows are not aligned.
    """
    metrics = _compared(rows, scored)
    if behind is None:
        return metrics
    versions = [{version for _, _, version in row.replies} for row in rows]
    for version in sorted(set().union(*versions), reverse=True):
        places = [place for place, several in enumerate(versions) if version in several]
        prefix = f"lag/{behind - version}/"
        of_version = [rows[place].of_version(version) for place in places]
        told = _compared(of_version, [scored[place] for place in places], prefix)
        metrics |= {name: value for name, value in told.items() if name.removeprefix(prefix) in BY_LAG}
    return metrics


def _compared(
    rows: Sequence[TrainingDatum], scored: Sequence[Any], prefix: str | None = None
) -> dict[str, float]:
    from baseten.loops.rl_metrics import loops_compute_kl_sample_train

    data = cast(Any, WireDatums(rows))  # all that is asked of it is its length and its datums, once
    named = {} if prefix is None else {"prefix": prefix}
    return dict(loops_compute_kl_sample_train(data, list(scored), **named))
