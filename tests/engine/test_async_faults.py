"""Async runs on a local server with faults: lost attempts, retries, and weights that do not arrive at the sampler."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.loops import session
from engine.recipes.contract import RunFailed
from engine.store.rows import AttemptState, GroupState, RunState
from tests.engine.async_story import ASYNC, Story, make_held_project
from tests.engine.faulty_server import Faults
from tests.engine.resumable import train

KL = "optim/train-sample-div/kl_sample_train_k3"


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        (Faults(fail_every=5), "injected: the sampler has lost this request"),
        (Faults(fail_every=5, empty=True), "the sampler returned 0 replies where 1 were asked for"),
    ],
)
async def test_retries_and_lost_attempts_cost_no_step_and_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Faults, sentence: str
) -> None:
    faults.use(monkeypatch)
    config = make_held_project(tmp_path)
    told = await train(
        config,
        *ASYNC,
        "training.max_steps=5",
        "training.max_rollout_retries=1",
        "training.max_group_losses=2",
        "training.max_consecutive_unusable_groups=100",
    )
    assert told.outcome.state is RunState.DONE
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=5, bound=1, shuffled=False)
    story.check_shares()
    assert any(row.state is AttemptState.DONE and row.tries == 2 for row in story.attempts)
    lost = [row for row in story.attempts if row.state is AttemptState.LOST]
    assert lost
    assert all(sentence in str(row.error) for row in lost)
    for group in story.groups:  # nothing is thrown away but for its losses
        rows = story.of_group(group.group_id)
        missing = sum(row.state is not AttemptState.DONE for row in rows)
        if group.state is not GroupState.TRAINED:
            assert missing > 2 or group.reason == "no_variance"
    retried = sum(row.metrics["rollout/retries"] for row in story.steps)
    assert retried == sum(row.tries - 1 for row in story.attempts)


async def test_weights_that_do_not_arrive_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler says that it serves the new weights, and goes on with the old ones."""
    Faults(stale_from=4).use(monkeypatch)  # Loops' version 1 is what the run begins with
    config = make_held_project(tmp_path)
    told = await train(config, *ASYNC, "training.max_steps=5")
    steps = told.lines("steps.jsonl")
    changed = [step["canary/changed"] for step in steps]
    assert changed == sorted(changed, reverse=True)  # from one publish on, nothing changes any more
    assert {changed[0], changed[-1]} == {1.0, 0.0}
    first = changed.index(0.0) + 1
    log = (told.directory / "run.log").read_text()
    assert log.count("may still serve") == 1
    assert f"after update {first} the sampler answers" in log
    # And the divergence says it as well: what is believed to be fresh is not.
    assert steps[0][KL] < 1e-6 < steps[-1][KL]


async def test_a_sampler_that_says_that_it_is_too_old_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Faults(stale_from=4, honest=True).use(monkeypatch)
    config = make_held_project(tmp_path)
    with pytest.raises(RunFailed, match="it serves weights that training must not use") as failed:
        await train(config, *ASYNC, "training.max_steps=8")
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize("failures", [2, 3])
async def test_a_publish_that_fails_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(session, "PUBLISH_AGAIN_SECONDS", (0.0, 0.0))
    Faults(publish_fails=failures).use(monkeypatch)
    training = train(make_held_project(tmp_path), *ASYNC, "training.max_steps=3")
    if failures > len(session.PUBLISH_AGAIN_SECONDS):
        with pytest.raises(RunFailed, match="answered 500 while publishing weights: injected"):
            await training
        return
    told = await training
    assert told.outcome.state is RunState.DONE
    Story.of(tmp_path, told.run.run_id).check(steps=3, bound=1, shuffled=False)
    assert (told.directory / "run.log").read_text().count("injected: the weights were not taken") == failures
