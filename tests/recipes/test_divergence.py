"""Sampler against trainer, apart by the age of each reply's own policy."""

from __future__ import annotations

import math

import pytest
from baseten.loops import TensorData

from engine.episodes import Task
from engine.episodes.runtime import AttemptResult
from engine.loops.divergence import divergence_metrics
from engine.policy.conversation import ConversationTrace
from engine.policy.tokens import Completion, Segment
from engine.recipes.rl.batch import pack
from engine.recipes.rl.groups import Group, judge
from engine.store.rows import AttemptState

DIV = "optim/train-sample-div/"
#: Of each attempt, its replies: policy version, and log(trainer's / sampler's probability) of each token.
ATTEMPTS = [[(3, [0.2, -0.1]), (4, [0.0])], [(4, [0.3, 0.1, -0.2])], [(3, [0.5]), (5, [0.05, -0.05])]]


def group() -> tuple[Group, list[TensorData]]:
    """A group that began at version 3, and what the trainer makes of its tokens."""
    made, scored = Group(0, Task(object(), "t", 0), 0, len(ATTEMPTS), 3, [None] * len(ATTEMPTS)), []
    for attempt, replies in enumerate(ATTEMPTS):
        segment, trainer = Segment(), []
        for version, differences in replies:
            segment.append_prompt([7, 8])
            size = len(differences)
            segment.append_reply(Completion([9] * size, [-1.0] * size, "stop", version))
            trainer += [0.0, 0.0, *(-1.0 + difference for difference in differences)]
        trace = ConversationTrace(segments=[segment], replies=len(replies))
        made.results[attempt] = AttemptResult(AttemptState.DONE, trace, reward=float(attempt**2))
        scored.append(TensorData(data=trainer, dtype="float32", shape=[len(trainer)]))
    made.verdict = judge(made, 0)
    return made, scored


@pytest.mark.parametrize("behind", [5, 6])
def test_each_reply_counts_at_the_age_of_the_policy_that_sampled_it(behind: int) -> None:
    made, scored = group()
    metrics = divergence_metrics(pack([made])[0], scored, behind)
    ages = {}
    for replies in ATTEMPTS:
        for version, differences in replies:
            ages.setdefault(behind - version, []).extend(differences)
    assert {name.split("/")[1] for name in metrics if name.startswith("lag/")} == {str(age) for age in ages}
    every = [difference for several in ages.values() for difference in several]
    for prefix, differences in [(DIV, every), *((f"lag/{age}/", several) for age, several in ages.items())]:
        ratios = [math.exp(difference) for difference in differences]
        count = len(ratios)
        k3 = sum(ratio - 1 - difference for ratio, difference in zip(ratios, differences, strict=True))
        assert metrics[f"{prefix}kl_sample_train_k3"] == pytest.approx(k3 / count, abs=1e-6)
        assert metrics[f"{prefix}is_ratio_mean"] == pytest.approx(sum(ratios) / count, abs=1e-6)
        ess = sum(ratios) ** 2 / (count * sum(ratio**2 for ratio in ratios))
        assert metrics[f"{prefix}ess_fraction"] == pytest.approx(ess, abs=1e-6)


def test_ages_are_told_only_where_the_trained_version_is() -> None:
    made, scored = group()
    metrics = divergence_metrics(pack([made])[0], scored)
    assert f"{DIV}kl_sample_train_k3" in metrics
    assert not [name for name in metrics if name.startswith("lag/")]
