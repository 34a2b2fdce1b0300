"""``[training] loss_config``: which settings each loss takes, and in which range they mean something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.config.problems import Problem, did_you_mean, named

_CLIP = {"clip_low_threshold": (0.0, None), "clip_high_threshold": (0.0, None)}

#: The documented settings of every loss, each with the least and the largest value it can have (None: no bound).
LOSS_SETTINGS: dict[str, Mapping[str, tuple[float, float | None]]] = {
    "importance_sampling": {},
    "ppo": _CLIP,
    "cispo": _CLIP,
    "dro": {"beta": (0.0, None)},
    "dppo": {
        "dppo_mask_high": (0.0, 1.0),
        "dppo_mask_low": (0.0, 1.0),
        "adv_tau": (0.0, None),
        "kl_tau": (0.0, None),
    },
}
_CLIP_DEFAULTS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
_BY_AGGREGATION = "skip_token_normalization"


def loss_config_problems(loss: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    """Settings that no trainer could follow."""
    known, numbers = LOSS_SETTINGS[loss], dict[str, float]()
    for name in sorted(known.keys() & given.keys()):
        value, (least, most) = given[name], known[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            said, remedy = (
                f"must be a number, not {value!r}",
                "Write a number, or leave it out for Loops' default",
            )
        elif value < least or (most is not None and value > most):
            said = f"must be {f'from {least:g} to {most:g}' if most is not None else f'at least {least:g}'}, not {value:g}"
            remedy = "Write one in this range, or leave it out for Loops' default"
        else:
            numbers[name] = value
            continue
        yield Problem(f"[training.loss_config] {name} {said}", key=_key(name), remedy=remedy)
    if numbers and numbers.keys() == _CLIP.keys() & given.keys():
        yield from _crossed(numbers)
    if _BY_AGGREGATION in given:
        yield Problem(
            f"[training.loss_config] {_BY_AGGREGATION} is set by [training] loss_aggregation",
            key=_key(_BY_AGGREGATION),
            remedy="Remove it and choose loss_aggregation 'sum' or 'token_mean'",
        )


def _crossed(numbers: Mapping[str, float]) -> Iterator[Problem]:
    """Clipping between two bounds of which the lower one is the higher one."""
    bounds = {**_CLIP_DEFAULTS, **numbers}
    low, high = bounds["clip_low_threshold"], bounds["clip_high_threshold"]
    if low > high:
        default = "" if len(numbers) == len(bounds) else " (the other one is Loops' default)"
        yield Problem(
            f"[training.loss_config] clip_low_threshold {low:g} is above clip_high_threshold {high:g}{default}",
            key=_key(next(iter(numbers))),
            remedy="The ratio is kept between the two: write such as 0.8 and 1.2",
        )


def loss_config_doubts(loss: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    """Settings that Loops does not document for this loss, where the trainer has the last word, or that are hardly
    meant."""
    known = LOSS_SETTINGS[loss]
    for name, value in given.items():
        if name in known:
            if isinstance(value, int | float):
                yield from _distance_for_bound(name, value)
        elif name != _BY_AGGREGATION:
            meant = did_you_mean(name, known)
            listed = ", ".join(sorted(known)) or "no settings"
            yield Problem(
                f"[training.loss_config] {name} is no documented setting of the loss {loss!r}",
                key=_key(name),
                remedy=f"Did you mean {meant}?" if meant else f"{loss} takes {listed}",
            )


def _distance_for_bound(name: str, value: float) -> Iterator[Problem]:
    """Other tools clip at 1 ± epsilon and ask for the epsilon; Loops asks for the bounds of the ratio themselves."""
    if name == "clip_high_threshold" and value < 1:
        remedy = f"Did you mean {1 + value:g}?"
    elif name == "clip_low_threshold" and value > 1:
        remedy = "Write one below 1, such as 0.8"
    else:
        return
    text = f"{named(_key(name))} = {value:g} cuts the ratio of a fresh sample, which is 1"
    yield Problem(text, key=_key(name), remedy=remedy)


def _key(name: str) -> str:
    return f"training.loss_config.{name}"
