"""Every number that a run tells is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
#: What real runs of the bundled examples told, names of tasks and reasons included.
TOLD = [
    "reward/mean", "reward/min", "reward/max", "reward/group_std_mean", "reward/mean_with_unusable",
    "reward/task/add_once", "reward/part/tests", "discard/groups/no_variance", "discard/groups/too_many_losses",
    "discard/attempts", "discard/attempts/infrastructure", "rollout/retries", "rollout/turns", "rollout/calls",
    "rollout/termination_reason/completed", "rollout/timed_out", "rollout/truncated", "tokens/sampled",
    "tokens/prompt", "tokens/trained", "tokens/sampled_per_second", "tokens/segments_per_attempt",
    "tokens/sampled_per_attempt", "time/step", "time/rollout", "time/train", "time/publish", "time/share/train",
    "time/attempt_share/provisioning", "loss", "train/kl/k3", "train/clip_fraction", "optim/grad_norm",
    "optim/learning_rate", "optim/train-sample-div/kl_sample_train_k3", "optim/train-sample-div/entropy",
    "groups/trained", "groups/finished", "loss/validation", "learning_rate", "epoch", "rows", "tokens/total",
    "time/validate", "eval/mean", "time/held_publish", "slots/busy", "lag/mean", "lag/max", "lag/groups/1",
    "lag/1/kl_sample_train_k3", "canary/changed",
]  # fmt: skip


@pytest.mark.skipif(not PAGE.is_file(), reason="the documents are not here")
@pytest.mark.parametrize("metric", TOLD)
def test_the_metric_is_explained(metric: str) -> None:
    patterns: list[str] = []
    for cell in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE):
        for name in re.findall(r"`([^`]+)`", cell):
            parts = [re.escape(part) for part in re.split(r"<[^>]+>|…", name)]
            patterns.append(".+".join(parts) if len(parts) > 1 else parts[0])
    assert any(re.fullmatch(pattern, metric) for pattern in patterns), metric
