"""Datums for the trainer, built the way clients build them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from baseten.loops import Datum, ModelInput, TensorData


def tensor(values: Sequence[float], dtype: str = "float32") -> TensorData:
    return TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def supervised(seed: int, length: int = 12, weights: Sequence[float] | None = None) -> Datum:
    """A row for cross_entropy: every token predicts the next."""
    tokens = np.random.default_rng(seed).integers(0, 250, length + 1).tolist()
    return Datum(
        model_input=ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tensor(tokens[1:], "int64"),
            "weights": tensor(weights if weights is not None else [1.0] * length),
        },
    )


def rollout(
    seed: int, advantage: float = 1.0, prompt: int = 4, length: int = 12, *, targets: bool = False
) -> Datum:
    """A row for the RL losses, token-aligned as the documentation's, or shifted with its target_tokens."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 250, length).tolist()
    logprobs = [0.0] * prompt + (-generator.uniform(3, 7, length - prompt)).tolist()
    advantages = [0.0] * prompt + [advantage] * (length - prompt)
    mask = [0.0] * prompt + [1.0] * (length - prompt)
    if not targets:
        inputs = {"logprobs": tensor(logprobs), "advantages": tensor(advantages), "mask": tensor(mask)}
        return Datum(model_input=ModelInput.from_ints(tokens), loss_fn_inputs=inputs)
    inputs = {
        "target_tokens": tensor(tokens[1:], "int64"),
        "logprobs": tensor(logprobs[1:]),
        "advantages": tensor(advantages[1:]),
        "mask": tensor(mask[1:]),
    }
    return Datum(model_input=ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)


def preference(seed: int, length: int = 10) -> Datum:
    datum = supervised(seed, length)
    return Datum(
        model_input=datum.model_input,
        loss_fn_inputs={**datum.loss_fn_inputs, "ref_logprobs": tensor([-5.0] * length)},
    )
