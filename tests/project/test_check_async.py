"""Check: what makes the ratios of old samples wrong, or unbounded, is said before a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.config import Severity
from engine.project import Project

Make = Callable[..., Project]


async def warned(project: Project) -> dict[str | None, str]:
    """The sentence of each warning by its key."""
    report = await project.check(loops=False)
    return {f.key: str(f) for f in report.findings if f.severity is Severity.WARNING}


@pytest.mark.parametrize(
    ("overrides", "unclipped"),
    [
        (("training.mode=async",), False),  # cispo, unless the config says otherwise
        (("training.mode=async", "training.loss=ppo"), False),
        (("training.mode=async", "training.loss=importance_sampling"), True),
        (
            ("training.mode=async", "training.max_steps_off_policy=3", "training.loss=importance_sampling"),
            True,
        ),
        (
            ("training.mode=async", "training.max_steps_off_policy=0", "training.loss=importance_sampling"),
            False,
        ),
        (("training.loss=importance_sampling",), False),  # sync: every sample is fresh
    ],
)
async def test_a_loss_without_clipping_is_doubted_where_samples_get_old(
    make: Make, overrides: tuple[str, ...], unclipped: bool
) -> None:
    said = (await warned(make(overrides=overrides))).get("training.loss")
    assert (said is not None) == unclipped
    if said is not None:
        assert "is not clipped" in said
        assert 'loss = "cispo"' in said


@pytest.mark.parametrize("override", ["sampling.temperature=0.7", "sampling.top_p=0.9", "sampling.top_k=20"])
async def test_sampling_that_the_trainer_cannot_score_is_doubted(make: Make, override: str) -> None:
    key = override.partition("=")[0]
    for mode in ("sync", "async"):
        assert (
            "biases the training" in (await warned(make(overrides=(f"training.mode={mode}", override))))[key]
        )


async def test_the_report_says_how_old_samples_may_get(make: Make) -> None:
    report = await make(overrides=("training.mode=async", "training.max_steps_off_policy=2")).check(
        loops=False
    )
    assert "at most 2 updates off policy, 2 within an attempt" in "\n".join(report.lines)
