"""Adam with gradient clipping and decoupled weight decay, over a dictionary of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from engine.local_loops.compute.interface import FloatArray


@dataclass(frozen=True, slots=True)
class AdamParams:
    """Parameters of one step; the defaults are those of the protocol. ``grad_clip_norm`` 0 clips nothing."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"adam_params.{name} must be at least 0 and below 1, not {getattr(self, name)!r}."
                )
        for name in ("learning_rate", "eps", "weight_decay", "grad_clip_norm"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"adam_params.{name} must be a number of at least 0, not {value!r}.")


@dataclass(slots=True)
class Adam:
    """Optimizer state: first and second moments by tensor name, and the number of steps taken."""

    first: dict[str, FloatArray] = field(default_factory=dict)
    second: dict[str, FloatArray] = field(default_factory=dict)
    steps: int = 0

    def step(
        self, tensors: dict[str, FloatArray], gradients: Mapping[str, FloatArray], params: AdamParams
    ) -> dict[str, float]:
        """Update ``tensors`` in place by one step (Kingma & Ba 2015; decay decoupled as in AdamW).

        ``gradients`` are already normalised. Returns grad_norm (before clipping), grad_clipped (0 or 1),
        learning_rate and update_norm. A gradient that is not finite raises ``FloatingPointError`` and changes nothing.
        """
        squares = sum(float(np.vdot(g, g.astype(np.float64))) for g in gradients.values())
        norm = math.sqrt(squares)
        if not math.isfinite(norm):
            raise FloatingPointError("the gradient is not finite; the optimizer step was not taken.")
        limit = params.grad_clip_norm
        clipped = limit > 0 and norm > limit
        scale = limit / norm if clipped else 1.0
        self.steps += 1
        correction1 = 1.0 - params.beta1**self.steps
        correction2 = 1.0 - params.beta2**self.steps
        moved = 0.0
        for name, tensor in tensors.items():
            gradient = gradients[name] * tensor.dtype.type(scale)
            first = self.first.setdefault(name, np.zeros_like(tensor))
            second = self.second.setdefault(name, np.zeros_like(tensor))
            first += (1.0 - params.beta1) * (gradient - first)
            second += (1.0 - params.beta2) * (gradient * gradient - second)
            update = (first / correction1) / (np.sqrt(second / correction2) + params.eps)
            if params.weight_decay:
                update += params.weight_decay * tensor
            update *= params.learning_rate
            moved += float(np.vdot(update, update.astype(np.float64)))
            np.subtract(tensor, update, out=tensor)
        return {
            "grad_norm": norm,
            "grad_clipped": float(clipped),
            "learning_rate": params.learning_rate,
            "update_norm": math.sqrt(moved),
        }

    def state(self) -> dict[str, FloatArray]:
        """A copy of the state as named arrays (``first.<tensor>``, ``second.<tensor>``, ``steps``), to be saved."""
        arrays = {f"first.{name}": value.copy() for name, value in self.first.items()}
        arrays |= {f"second.{name}": value.copy() for name, value in self.second.items()}
        arrays["steps"] = np.array([self.steps], dtype=np.float32)
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, FloatArray]) -> Adam:
        """The optimizer that :meth:`state` described."""
        adam = cls(steps=round(float(arrays["steps"][0])))
        for name, value in arrays.items():
            kind, _, tensor = name.partition(".")
            if kind == "first":
                adam.first[tensor] = value.copy()
            elif kind == "second":
                adam.second[tensor] = value.copy()
        return adam
