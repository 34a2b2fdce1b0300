"""Async runs with the real engine, told what to do by commands in the store, evaluated, and out of budget."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from engine.hosting.requests import request
from engine.hosting.runs_here import RunsHere
from engine.recipes.control import RunControl
from engine.store import Store
from engine.store.rows import AttemptState, CheckpointState, CommandRow, CommandState, GroupState, RunState
from tests.engine.async_story import ASYNC, GROUPS, Story
from tests.engine.resumable import Told, make_project, train, until_step
from tests.engine.test_hand_over import until_done

LONG = "training.max_steps=5000"


async def ask(store: Store, run_id: str, kind: str) -> CommandRow:
    return await asyncio.to_thread(request, store, run_id, kind, timeout=90)


async def until_still(store: Store, run_id: str) -> None:
    """Wait until a paused run has nothing in flight."""
    ended = {AttemptState.DONE, AttemptState.LOST, AttemptState.DISCARDED}
    reader = store.reader()
    async with asyncio.timeout(90):
        while True:
            groups = reader.groups(run_id, 1000)
            open_groups = [row for row in groups if row.state is GroupState.RUNNING]
            attempts = [row for group in open_groups for row in reader.attempts(run_id, group.group_id)]
            # A pause keeps groups from beginning, so what has not ended then never began to sample.
            busy = [row for row in attempts if row.state not in {*ended, AttemptState.QUEUED}]
            if reader.run(run_id).state is RunState.PAUSED and not busy:
                return
            await asyncio.sleep(0.05)


def saved_steps(project: Path, told: Told) -> dict[str, set[int]]:
    """What the server itself counts in each checkpoint: optimizer steps, by name."""
    runs = project / ".loops" / "loops-server" / "runs"
    record = json.loads((runs / str(told.run.loops_run_id) / "run.json").read_text())
    steps: dict[str, set[int]] = {}
    for checkpoint in record["checkpoints"]:
        if checkpoint["name"].startswith("step-"):
            steps.setdefault(checkpoint["name"], set()).add(checkpoint["step"])
    return steps


async def test_a_pause_lets_what_is_in_flight_end_and_begins_nothing(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    seen: dict[str, Any] = {}

    async def pause_and_go_on(control: RunControl, store: Store) -> None:
        run_id = (await until_step(store, 2)).run_id
        assert (await ask(store, run_id, "pause")).state is CommandState.DONE
        await until_still(store, run_id)
        reader = store.reader()
        saved = await ask(store, run_id, "save")  # nothing moves: it is saved at once
        seen["saved"], seen["step"] = saved.answer, reader.run(run_id).step
        seen["groups"] = {row.group_id for row in reader.groups(run_id, 1000)}
        assert (await ask(store, run_id, "evaluate")).answer == (
            "this run's config has no [eval]: there are no held-out tasks"
        )
        assert reader.run(run_id).step == seen["step"]
        assert {row.group_id for row in reader.groups(run_id, 1000)} == seen["groups"]
        assert (await ask(store, run_id, "resume")).state is CommandState.DONE
        await until_step(store, seen["step"] + 2)
        assert (await ask(store, run_id, "stop")).state is CommandState.DONE

    told = await train(config, *ASYNC, LONG, meanwhile=pause_and_go_on)
    assert told.outcome.state is RunState.STOPPED
    name = f"step-{seen['step']:06d}"
    assert seen["saved"] in {f"saved as {name}", f"{name} is saved already"}
    assert saved_steps(tmp_path, told) == {row.name: {row.step} for row in told.checkpoints}
    steps = told.run.step + 2
    resumed = await train(config, *ASYNC, f"training.max_steps={steps}", resume=told.run.run_id)
    assert resumed.outcome.state is RunState.DONE
    Story.of(tmp_path, told.run.run_id).check(steps=steps, bound=1)


async def test_an_aborted_run_goes_on_without_a_gap(tmp_path: Path) -> None:
    config = make_project(tmp_path)

    async def end(control: RunControl, store: Store) -> None:
        run_id = (await until_step(store, 3)).run_id
        await ask(store, run_id, "abort")

    every = "output.checkpoint_every=2"
    told = await train(config, *ASYNC, every, LONG, meanwhile=end)
    assert told.outcome.state is RunState.ABORTED
    newest = max(
        (row for row in told.checkpoints if row.state is CheckpointState.SAVED), key=lambda row: row.step
    )
    # In the middle of an update the last whole step cannot be saved any more; the checkpoint before it has to do.
    assert newest.step in {told.run.step, told.run.step - 1}
    story = Story.of(tmp_path, told.run.run_id)
    assert {row.state for row in story.groups} <= {GroupState.TRAINED, GroupState.REJECTED}
    assert newest.cursor["next_group"] == 1 + max(
        group for group, step in story.trained if step is not None and step <= newest.step
    )
    steps = told.run.step + 2
    resumed = await train(config, *ASYNC, every, f"training.max_steps={steps}", resume=told.run.run_id)
    assert resumed.outcome.state is RunState.DONE
    Story.of(tmp_path, told.run.run_id).check(steps=steps, bound=1)


async def test_a_checkpoint_that_was_asked_for_holds_its_step_and_no_more(tmp_path: Path) -> None:
    config = make_project(tmp_path)

    async def save_and_lose(control: RunControl, store: Store) -> None:
        run_id = (await until_step(store, 1)).run_id
        answer = await ask(store, run_id, "save")
        assert answer.state is CommandState.DONE
        assert str(answer.answer).startswith("saved as step-")
        await until_step(store, store.reader().checkpoints(run_id)[0].step + 2)
        control.abort("test", lost=True)  # nothing may be saved any more

    told = await train(config, *ASYNC, LONG, meanwhile=save_and_lose)
    (asked,) = told.checkpoints
    assert (asked.why, asked.policy_version) == ("asked", asked.step)
    assert told.run.step >= asked.step + 2
    assert saved_steps(tmp_path, told) == {asked.name: {asked.step}}
    before = Story.of(tmp_path, told.run.run_id)
    frontier = asked.cursor["next_group"]
    kept = [group for group, _ in before.trained if group < frontier]
    assert len(kept) == GROUPS * asked.step
    assert asked.cursor["untrained"][:1] in ([], [frontier])
    steps = asked.step + 3
    resumed = await train(config, *ASYNC, f"training.max_steps={steps}", resume=told.run.run_id)
    assert "the trainer counts" not in (resumed.directory / "run.log").read_text()
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=steps, bound=1)
    # What the checkpoint had is as it was; what came after it was made again.
    assert [group for group, _ in story.trained][: len(kept)] == kept
    for row in story.attempts:
        if row.group_id < frontier:
            assert row.started_at in [old.started_at for old in before.of_group(row.group_id)]


async def test_evaluations_see_weights_that_hold_still_and_are_never_trained_on(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    (tmp_path / "held.jsonl").write_text(
        "".join(
            json.dumps({"name": f"held-{n}", "instruction": f"Name a game of {n}."}) + "\n" for n in range(3)
        )
    )
    sets = ("eval.tasks=held.jsonl", "eval.every_steps=2", "eval.attempts_per_task=8")
    told = await train(config, *ASYNC, *sets, "training.max_steps=6")
    story = Story.of(tmp_path, told.run.run_id)
    story.check(steps=6, bound=1)
    assert {row.task_id for row in story.groups}.isdisjoint({"held-0", "held-1", "held-2"})
    with Store.open(tmp_path) as store:
        reader = store.reader()
        evals = reader.evals(told.run.run_id)[::-1]
        assert [(row.eval_id, row.step, row.state, row.graded) for row in evals] == [
            ("base", None, "done", 24),
            ("step-000002", 2, "done", 24),
            ("step-000004", 4, "done", 24),
            ("step-000006", 6, "done", 24),
        ]
        every = reader.groups(told.run.run_id, 1000)
        for row in evals:
            groups = [group for group in every if group.eval_id == row.eval_id]
            attempts = [each for g in groups for each in reader.attempts(told.run.run_id, g.group_id)]
            assert {(each.version_min, each.version_max) for each in attempts} == {(row.step or 0,) * 2}
            assert {group.state for group in groups} == {GroupState.EVALUATED}
            # The trainer scored these tokens with the very weights that sampled them.
            assert abs(row.metrics["eval/train-sample-div/kl_sample_train_k3"]) < 1e-6
    # Meanwhile the later groups were sampled; no step counts the evaluation as its own time.
    ran = [(each.started_at or 0.0, each.ended_at or 0.0) for each in story.attempts]
    during = [
        row for row in evals[1:3] if any(a < (row.ended_at or 0.0) and b > row.created_at for a, b in ran)
    ]
    assert [row.step for row in during] == [2, 4]
    story.check_shares()


async def test_a_run_out_of_budget_ends_after_its_step_and_goes_on_with_more(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    told = await train(config, *ASYNC, LONG, "budget.max_tokens=1500")
    assert told.outcome.state is RunState.STOPPED
    assert told.run.info["ended_by"] == "[budget] max_tokens"
    (left,) = told.checkpoints
    assert (left.why, left.step, left.state) == ("budget", told.run.step, CheckpointState.SAVED)
    assert told.run.spend["prompt_tokens"] + told.run.spend["sampled_tokens"] >= 1500
    steps = told.run.step + 2
    resumed = await train(config, *ASYNC, f"training.max_steps={steps}", resume=told.run.run_id)
    assert resumed.outcome.state is RunState.DONE
    assert "ended_by" not in resumed.run.info
    Story.of(tmp_path, told.run.run_id).check(steps=steps, bound=1)


async def test_an_async_run_goes_on_in_a_process_of_its_own(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    here = RunsHere(tmp_path)
    try:
        run_id = await asyncio.to_thread(here.start, config, [*ASYNC, "training.max_steps=12"])
        with Store.open(tmp_path) as store:
            await until_step(store, 2)
            await asyncio.to_thread(here.hand_over, run_id, 120.0)
            row = await until_done(store, run_id)
            whys = {checkpoint.why for checkpoint in store.reader().checkpoints(run_id)}
    finally:
        await asyncio.to_thread(here.close)
    assert (row.state, row.error) == (RunState.DONE, None)
    assert whys == {"hand-over", "end"}
    Story.of(tmp_path, run_id).check(steps=12, bound=1)
