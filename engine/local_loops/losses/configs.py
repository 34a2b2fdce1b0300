"""Names and configurations of the losses: what is allowed, and a sentence for what is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class LossConfigError(ValueError):
    """An unknown loss, or a ``loss_fn_config`` that is not allowed; the message names the key and the remedy."""


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric config key with its default and inclusive range."""

    default: float
    low: float = 0.0
    high: float = math.inf

    @property
    def allowed(self) -> str:
        if self.high == math.inf:
            return f"a number of at least {self.low:g}"
        return f"a number from {self.low:g} to {self.high:g}"


_CLIP = {"clip_low_threshold": Number(0.8), "clip_high_threshold": Number(1.2)}

#: Every loss with its numeric keys. ``skip_token_normalization`` is a flag that all but dpo take besides.
SPECS: dict[str, dict[str, Number]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": _CLIP,
    "cispo": _CLIP,
    "dro": {"beta": Number(0.05)},
    "dpo": {"beta": Number(0.1), "label_smoothing": Number(0.0, 0.0, 0.5)},
    "dppo": {
        "dppo_mask_high": Number(0.2, 0.0, 1.0),
        "dppo_mask_low": Number(0.2, 0.0, 1.0),
        "adv_tau": Number(1.0),
        "kl_tau": Number(1e-3),
    },
}

LOSS_NAMES: tuple[str, ...] = tuple(SPECS)

FLAG = "skip_token_normalization"


@dataclass(frozen=True, slots=True)
class LossConfig:
    """A checked configuration: every numeric key of the loss has a value."""

    name: str
    numbers: Mapping[str, float]
    skip_token_normalization: bool

    def __getitem__(self, key: str) -> float:
        return self.numbers[key]


def check_config(name: str, config: Mapping[str, Any] | None) -> LossConfig:
    """Check a loss name and its config; raise :class:`LossConfigError` with one sentence."""
    spec = SPECS.get(name)
    if spec is None:
        raise LossConfigError(f"loss_fn {name!r} is unknown; it must be one of {', '.join(LOSS_NAMES)}.")
    if config is not None and not isinstance(config, Mapping):
        raise LossConfigError(
            f"loss_fn_config of {name} must be an object or null, not {type(config).__name__}."
        )
    numbers = {key: number.default for key, number in spec.items()}
    flag = False
    for key, value in (config or {}).items():
        if key == FLAG and name != "dpo":
            if not isinstance(value, bool):
                raise LossConfigError(f"loss_fn_config.{key} must be true or false, not {value!r}.")
            flag = value
        elif key in spec:
            numbers[key] = _number(key, value, spec[key])
        else:
            known = [*spec, *([FLAG] if name != "dpo" else [])]
            raise LossConfigError(f"loss_fn_config.{key} is no key of {name}; it takes {', '.join(known)}.")
    if "clip_low_threshold" in numbers and numbers["clip_low_threshold"] > numbers["clip_high_threshold"]:
        raise LossConfigError(
            f"loss_fn_config.clip_low_threshold ({numbers['clip_low_threshold']:g}) must not exceed "
            f"clip_high_threshold ({numbers['clip_high_threshold']:g})."
        )
    return LossConfig(name, numbers, flag)


def _number(key: str, value: Any, number: Number) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LossConfigError(f"loss_fn_config.{key} must be {number.allowed}, not {value!r}.")
    result = float(value)
    if not (math.isfinite(result) and number.low <= result <= number.high):
        raise LossConfigError(f"loss_fn_config.{key} must be {number.allowed}, not {value!r}.")
    return result
