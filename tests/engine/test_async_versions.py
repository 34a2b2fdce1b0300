"""Async runs of the real engine whose attempts are held in mid-turn: which policy answered, and how old it may get."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store import Store
from engine.store.rows import RunState
from tests.engine.async_story import ASYNC, SIZE, Story, WhenPhase, hold, make_held_project
from tests.engine.resumable import Told, When, train

STEPS = 4


def versions(config: Path, told: Told, group_id: int) -> list[list[int]]:
    """The policy of each reply, attempt by attempt."""
    with Store.open(config.parent) as store:
        transcripts = [store.reader().transcript(told.run.run_id, group_id, n) for n in range(SIZE)]
    return [
        [turn["sampled"]["policy_version"] for turn in row.turns if "sampled" in turn]
        for row in transcripts
        if row is not None
    ]


@pytest.mark.parametrize("shared", ["false", "true"])
async def test_a_publish_between_two_replies_shows_in_each_of_them(tmp_path: Path, shared: str) -> None:
    config = make_held_project(tmp_path)
    held = hold(config, 2)  # group 2 begins with the first policy, beside the first step's groups
    told = await train(
        config,
        *ASYNC,
        f"training.max_steps={STEPS}",
        f"sampling.share_first_call={shared}",
        when=When(1, "done", lambda _: held.unlink()),
    )
    assert told.outcome.state is RunState.DONE
    assert versions(config, told, 2) == [[0, 1]] * SIZE
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=STEPS, bound=1, shuffled=False)
    story.check_shares()
    assert (story.groups[2].policy_version, story.groups[2].step) == (0, 2)
    second = story.steps[1].metrics
    assert second["lag/max"] == 1
    assert {"lag/1/is_ratio_mean", "lag/1/ess_fraction", "lag/1/kl_sample_train_k3"} <= set(second)
    # Tokens of the older policy are where sampler and trainer differ.
    assert second["lag/1/kl_sample_train_k3"] > 1e-6 > story.steps[0].metrics["lag/0/kl_sample_train_k3"]
    # Each reply counts by its own policy: the held group's second ones were as fresh as can be.
    assert second["lag/0/kl_sample_train_k3"] < 1e-6


@pytest.mark.parametrize(("delta", "k", "group"), [(0, 1, 2), (1, 2, 4)])
async def test_a_publish_waits_for_attempts_that_may_not_see_it(
    tmp_path: Path, delta: int, k: int, group: int
) -> None:
    config = make_held_project(tmp_path)
    held = hold(config, group)  # of the newest batch that begins with the first policy
    seen: list[bool] = []

    def let_go() -> None:
        seen.append(held.exists())
        if len(seen) == delta + 1:  # the first publish that has to wait
            held.unlink()

    told = await train(
        config,
        *ASYNC,
        f"training.max_steps={STEPS}",
        f"training.max_steps_off_policy={k}",
        f"training.max_policy_delta_in_trajectory={delta}",
        when=WhenPhase("waiting to publish", let_go),
    )
    assert told.outcome.state is RunState.DONE
    # The steps before were trained while the group was held, and published but for the last.
    assert seen == [step <= delta for step in range(STEPS)]
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=STEPS, bound=k, shuffled=False)
    story.check_shares()
    assert all((row.version_max or 0) - (row.version_min or 0) <= delta for row in story.attempts)
    assert versions(config, told, group) == [[0, delta]] * SIZE
    assert story.steps[delta].metrics["time/held_publish"] > 0


@pytest.mark.parametrize("k", [1, 3])
async def test_a_group_that_is_held_up_is_trained_in_its_turn(tmp_path: Path, k: int) -> None:
    """Later groups go on beside it; it is not overtaken, thrown away or older than the bound."""
    config = make_held_project(tmp_path)
    held = hold(config, 3)
    told = await train(
        config,
        *ASYNC,
        f"training.max_steps_off_policy={k}",
        "training.max_steps=6",
        "training.max_concurrent_rollouts=6",
        when=WhenPhase("publishing", lambda: held.unlink(missing_ok=True)),
    )
    assert told.outcome.state is RunState.DONE
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=6, bound=k, shuffled=False)
    story.check_shares()
    assert [group for group, _ in story.trained] == list(range(12))
    assert max(row.metrics["lag/max"] for row in story.steps) <= k
