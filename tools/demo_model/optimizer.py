"""Adam with gradient clipping, written out: the one optimiser that pretraining and the LoRA check need."""

from __future__ import annotations

from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]


def start(params: Any) -> tuple[Any, Any]:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return zeros, zeros


def update(  # noqa: PLR0917
    params: Any,
    grads: Any,
    state: tuple[Any, Any],
    step: Any,
    rate: Any,
    decay: float = 0.0,
    second: float = 0.98,
) -> tuple[Any, tuple[Any, Any]]:
    """One step (counted from 1). Gradients are clipped to norm 1; `decay` touches matrices only."""
    first = 0.9
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    factor = jnp.minimum(1.0, 1.0 / (size + 1e-9))
    mean = jax.tree.map(lambda m, g: first * m + (1 - first) * g * factor, state[0], grads)
    square = jax.tree.map(lambda s, g: second * s + (1 - second) * (g * factor) ** 2, state[1], grads)

    def move(w: Any, m: Any, s: Any) -> Any:
        change = (m / (1 - first**step)) / (jnp.sqrt(s / (1 - second**step)) + 1e-8)
        return w - rate * (change + decay * (w if w.ndim > 1 else 0.0 * w))

    return jax.tree.map(move, params, mean, square), (mean, square)
