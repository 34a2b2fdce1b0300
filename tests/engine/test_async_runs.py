"""Async runs with the real engine, SDK, local server and model: how old samples get, and that nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.store.rows import CheckpointState, RunState
from tests.engine.async_story import GROUPS, Story
from tests.engine.resumable import Told, When, make_project, train

ASYNC = ("training.mode=async", "training.max_steps_off_policy=2")
KL = "optim/train-sample-div/kl_sample_train_k3"
STEPS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Path]:
    config = make_project(tmp_path_factory.mktemp("async"))
    return asyncio.run(train(config, *ASYNC)), config


def test_every_group_is_trained_once_in_its_order_within_the_bound(whole: tuple[Told, Path]) -> None:
    told, config = whole
    assert told.outcome.state is RunState.DONE
    story = Story.of(config.parent, told.run.run_id)
    story.check(steps=STEPS, bound=2)
    story.check_shares()


def test_a_step_tells_how_old_its_samples_were(whole: tuple[Told, Path]) -> None:
    steps = whole[0].lines("steps.jsonl")
    assert steps[0]["lag/max"] == 0
    assert 1 <= max(step["lag/max"] for step in steps) <= 2
    for step in steps:
        ages = {int(name.rsplit("/", 1)[1]): count for name, count in step.items() if "lag/groups/" in name}
        assert sum(ages.values()) == GROUPS
        assert step["lag/max"] == max(ages)
        # Replies may be of newer policies than the one that their group began with.
        replies = {
            int(name.split("/")[1]) for name in step if name.endswith("/ess_fraction") and "lag/" in name
        }
        assert replies
        assert 0 <= min(replies) <= max(replies) <= step["lag/max"]
    # On fresh samples sampler and trainer agree; the first step has no others.
    assert steps[0][KL] < 1e-6


def test_published_weights_are_seen_to_serve(whole: tuple[Told, Path]) -> None:
    assert [step["canary/changed"] for step in whole[0].lines("steps.jsonl")] == [1.0] * STEPS


async def test_a_stopped_async_run_skips_no_task_and_repeats_none(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    stopped = await train(
        config, *ASYNC, when=When(3, "training", lambda control: control.stop_after_step("test"))
    )
    assert stopped.outcome.state is RunState.STOPPED
    assert stopped.run.step == 3
    (left,) = stopped.checkpoints
    assert (left.state, left.step) == (CheckpointState.SAVED, 3)
    frontier = left.cursor["next_group"]
    before = Story.of(tmp_path, stopped.run.run_id)
    assert before.trained[-1][0] == frontier - 1
    # Groups were in flight: the checkpoint names them, their rows say that they ended, and a resume makes them anew.
    assert left.cursor["untrained"]
    assert min(left.cursor["untrained"]) == frontier
    assert all(row.ended_at for row in before.attempts)
    resumed = await train(config, *ASYNC, resume=stopped.run.run_id)
    assert resumed.outcome.state is RunState.DONE
    after = Story.of(tmp_path, stopped.run.run_id)
    after.check(steps=STEPS, bound=2)
    assert after.trained[: len(before.trained)] == before.trained
