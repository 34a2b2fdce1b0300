"""Async runs with the real engine, SDK, local server and model: how old samples get, and that nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from engine.recipes.control import RunControl
from engine.store import Store
from engine.store.rows import CheckpointState, GroupState, RunState
from tests.engine.resumable import Told, When, make_project, train, until_step

ASYNC = ("training.mode=async", "training.max_steps_off_policy=2")
KL = "optim/train-sample-div/kl_sample_train_k3"
GROUPS, STEPS = 2, 6


def trained(told: Told) -> list[tuple[int, int]]:
    """(group, step) of every group that was trained on."""
    lines = told.lines("rollouts.jsonl")
    return sorted({(line["group_id"], line["step"]) for line in lines if line["group_state"] == "trained"})


def check_ages(told: Told, config: Path, bound: int) -> None:
    """Each group's policy is within the bound of the step that trained it, and so is each reply."""
    with Store.open(config.parent) as store:
        reader = store.reader()
        groups = [row for row in reader.groups(told.run.run_id) if row.state is GroupState.TRAINED]
        for group in groups:
            assert group.step is not None
            assert group.policy_version is not None
            assert 0 <= group.step - 1 - group.policy_version <= bound
            for attempt in reader.attempts(told.run.run_id, group.group_id):
                if attempt.version_min is not None and attempt.version_max is not None:
                    assert group.policy_version <= attempt.version_min
                    assert attempt.version_max <= group.step - 1


def check_all_ended(told: Told, project: Path) -> None:
    """No row says that something still runs."""
    with Store.open(project) as store:
        reader = store.reader()
        for group in reader.groups(told.run.run_id):
            assert group.state is not GroupState.RUNNING
            assert all(row.ended_at for row in reader.attempts(told.run.run_id, group.group_id))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Told, Path]:
    config = make_project(tmp_path_factory.mktemp("async"))
    return asyncio.run(train(config, *ASYNC)), config


def test_every_group_is_trained_once_in_its_order_within_the_bound(whole: tuple[Told, Path]) -> None:
    told, config = whole
    assert told.outcome.state is RunState.DONE
    rejected = {
        line["group_id"] for line in told.lines("rollouts.jsonl") if line["group_state"] == "rejected"
    }
    kept = [group for group in range(GROUPS * STEPS + len(rejected)) if group not in rejected]
    assert trained(told) == [(group, place // GROUPS + 1) for place, group in enumerate(kept)]
    check_ages(told, config, 2)


def test_a_step_tells_how_old_its_samples_were(whole: tuple[Told, Path]) -> None:
    steps = whole[0].lines("steps.jsonl")
    assert steps[0]["lag/max"] == 0
    assert 1 <= max(step["lag/max"] for step in steps) <= 2
    for step in steps:
        ages = {int(name.rsplit("/", 1)[1]): count for name, count in step.items() if "lag/groups/" in name}
        assert sum(ages.values()) == GROUPS
        assert step["lag/max"] == max(ages)
        assert {f"lag/{age}/kl_sample_train_k3" for age in ages} <= set(step)
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
    assert [group for group, _ in trained(stopped)][-1] == frontier - 1
    assert left.cursor["untrained"]
    assert min(left.cursor["untrained"]) == frontier
    check_all_ended(stopped, tmp_path)
    resumed = await train(config, *ASYNC, resume=stopped.run.run_id)
    assert resumed.outcome.state is RunState.DONE
    groups = [group for group, _ in trained(resumed)]
    assert len(groups) == len(set(groups)) == GROUPS * STEPS
    assert [line["step"] for line in resumed.lines("steps.jsonl")] == list(range(1, STEPS + 1))
    told = Counter((line["group_id"], line["attempt"]) for line in resumed.lines("rollouts.jsonl"))
    assert set(told.values()) == {1}
    assert {group for group, _ in told} == set(range(max(groups) + 1))
    check_ages(resumed, config, 2)


async def test_an_aborted_async_run_saves_its_last_whole_step(tmp_path: Path) -> None:
    config = make_project(tmp_path)

    async def abort(control: RunControl, store: Store) -> None:
        await until_step(store, 2)
        control.abort("test")

    aborted = await train(config, *ASYNC, "training.max_steps=50", meanwhile=abort)
    assert aborted.outcome.state is RunState.ABORTED
    assert aborted.run.step >= 2
    check_all_ended(aborted, tmp_path)
    resumed = await train(
        config, *ASYNC, f"training.max_steps={aborted.run.step + 1}", resume=aborted.run.run_id
    )
    assert resumed.outcome.state is RunState.DONE
    groups = [group for group, _ in trained(resumed)]
    assert len(groups) == GROUPS * (aborted.run.step + 1)
