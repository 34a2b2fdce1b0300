"""Stopping and going on, with the real engine, SDK, local server and model: nothing may show where it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.hosting.errors import HostingError, ResumeRefused
from engine.recipes.control import RunControl
from engine.store import Store
from engine.store.rows import CheckpointState, RunState
from tests.engine.resumable import Told, When, make_project, train, until_step

KL = "optim/train-sample-div/kl_sample_train_k3"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Six steps without a break."""
    return asyncio.run(train(make_project(tmp_path_factory.mktemp("whole"))))


async def evaluated_in_a_pause(control: RunControl, _: Store) -> None:
    """Before the first step of a sitting."""
    answered = asyncio.Event()
    control.pause("test")
    control.evaluate(lambda *_: answered.set())
    async with asyncio.timeout(60):
        await answered.wait()
    control.resume("test")


async def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, whole: Told) -> None:
    config = make_project(tmp_path)
    held_out = ("eval.tasks=tasks.jsonl", "eval.at_start=false", "eval.at_end=false")
    stop = When(3, "training", lambda control: control.stop_after_step("test"))
    stopped = await train(config, *held_out, when=stop)
    assert stopped.outcome.state is RunState.STOPPED
    assert stopped.run.step == 3
    (left,) = stopped.checkpoints
    assert (left.state, left.why, left.step) == (CheckpointState.SAVED, "stop", stopped.run.step)
    resumed = await train(config, *held_out, resume=stopped.run.run_id, meanwhile=evaluated_in_a_pause)
    assert (resumed.run.run_id, resumed.run.run_dir) == (stopped.run.run_id, stopped.run.run_dir)
    assert resumed.outcome.state is RunState.DONE
    assert resumed.attempts == whole.attempts
    assert resumed.curve == whole.curve
    assert [line["policy_version"] for line in resumed.lines("steps.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert (resumed.run.reward_first, resumed.run.reward_last) == (
        whole.run.reward_first,
        whole.run.reward_last,
    )
    assert resumed.run.info["loops_runs"] == [stopped.run.loops_run_id]
    assert resumed.run.loops_run_id != stopped.run.loops_run_id
    assert max(line[KL] for line in resumed.lines("steps.jsonl")) < 1e-6
    (evaluated,) = resumed.lines("evals.jsonl")
    assert (evaluated["target"], evaluated["step"], evaluated["state"]) == ("live", 3, "done")


async def test_a_finished_run_goes_on_with_more_steps(tmp_path: Path, whole: Told) -> None:
    config = make_project(tmp_path)
    short = await train(config, "training.max_steps=3")
    assert [(row.name, row.why) for row in short.checkpoints] == [("step-000003", "end")]
    with pytest.raises(HostingError, match=r"all its 3 steps.*--set training\.max_steps=6"):
        await train(config, "training.max_steps=3", resume=short.run.run_id)
    resumed = await train(config, resume=short.run.run_id)
    assert (resumed.attempts, resumed.curve) == (whole.attempts, whole.curve)
    assert (resumed.run.max_steps, resumed.run.step) == (6, 6)


# What is sampled can be thrown away and the step before saved; half a step in the trainer cannot.
@pytest.mark.parametrize(("state", "step"), [("collecting", 3), ("training", 2)])
async def test_an_aborted_run_goes_on_after_its_last_whole_step(
    tmp_path: Path, whole: Told, state: str, step: int
) -> None:
    config = make_project(tmp_path)
    every = "output.checkpoint_every=2"
    aborted = await train(config, every, when=When(4, state, lambda control: control.abort("test")))
    assert aborted.outcome.state is RunState.ABORTED
    assert aborted.run.step == 3
    saved = max(row.step for row in aborted.checkpoints if row.state is CheckpointState.SAVED)
    assert saved == step
    resumed = await train(config, every, resume=aborted.run.run_id)
    assert (resumed.attempts, resumed.curve) == (whole.attempts, whole.curve)
    assert {path.name for path in (resumed.directory / "transcripts").iterdir()} == {
        path.name for path in (whole.directory / "transcripts").iterdir()
    }


async def test_a_run_without_a_checkpoint_begins_again(tmp_path: Path, whole: Told) -> None:
    config = make_project(tmp_path)
    # Another host has it: nothing may be saved.
    aborted = await train(
        config, when=When(2, "collecting", lambda control: control.abort("test", lost=True))
    )
    assert aborted.checkpoints == []
    resumed = await train(config, resume=aborted.run.run_id)
    assert (resumed.attempts, resumed.curve) == (whole.attempts, whole.curve)
    assert "from its beginning with a fresh adapter" in (resumed.directory / "run.log").read_text()


async def test_a_checkpoint_is_saved_when_it_is_asked_for(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    loop = asyncio.get_running_loop()
    said = {name: loop.create_future() for name in ("first", "second", "paused")}

    def answer(name: str) -> Callable[[bool, str], None]:
        return lambda done, text: said[name].set_result((done, text))

    async def ask(control: RunControl, store: Store) -> None:
        control.save(answer("first"))
        control.save(answer("second"))
        await until_step(store, 1)
        control.pause("test")
        control.save(answer("paused"))
        async with asyncio.timeout(60):
            await said["paused"]
        control.resume("test")

    told = await train(config, "training.max_steps=4", meanwhile=ask)
    assert await said["first"] == (True, "saved as step-000001")
    assert await said["second"] == (True, "step-000001 is saved already")
    # The trainer stands still in a pause: it is saved at once, unless the pause came right after the first save.
    done, text = await said["paused"]
    assert done
    assert text == "step-000001 is saved already" or text.startswith("saved as step-")
    assert {row.why for row in told.checkpoints} >= {"asked", "end"}
    assert all(row.size_bytes for row in told.checkpoints)


async def test_another_run_begins_with_saved_weights(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    first = await train(config, "training.max_steps=3")
    second = await train(
        config, "training.max_steps=2", f"model.from_checkpoint={first.run.run_id}@step-000003"
    )
    assert second.run.run_id != first.run.run_id
    # Exactly the weights that the trainer loaded were sampled from, before the first optimizer step as well.
    assert max(line[KL] for line in second.lines("steps.jsonl")) < 1e-6
    plain = await train(config, "training.max_steps=1")
    assert second.curve[0] != plain.curve[0]


async def test_other_tasks_are_refused(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    first = await train(config, "training.max_steps=1")
    make_project(tmp_path, tasks=6)
    with pytest.raises(HostingError, match=r"the tasks in .*tasks\.jsonl have changed"):
        await train(config, resume=first.run.run_id)
    with Store.open(tmp_path) as store:
        assert store.reader().run(first.run.run_id).state is RunState.DONE


async def test_a_checkpoint_that_is_gone_is_told_in_one_sentence(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    first = await train(config, "training.max_steps=1")
    with Store.open(tmp_path) as store:
        recorder = store.recorder(first.run.run_id, files=False)
        (row,) = first.checkpoints
        row.trainer_path = "bt://loops:run-gone/weights/step-000001"
        recorder.checkpoint(row)
        recorder.close()
        before = store.reader().run(first.run.run_id)
    with pytest.raises(
        ResumeRefused, match=f"no longer has step-000001 of run {first.run.run_id}"
    ) as refused:
        await train(config, resume=first.run.run_id)
    assert "\n" not in str(refused.value)
    # Nothing was provisioned and nothing changed: what was trained until the checkpoint is still there.
    with Store.open(tmp_path) as store:
        assert store.reader().run(first.run.run_id) == before
    assert len(json.loads((first.directory / "steps.jsonl").read_text().splitlines()[0])) > 5


async def test_a_run_that_was_killed_between_its_last_checkpoint_and_its_end_is_ended(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    first = await train(config, "training.max_steps=2")
    with Store.open(tmp_path) as store:  # as it is found when its process has died then
        recorder = store.recorder(first.run.run_id, files=False)
        recorder.run(state=RunState.INTERRUPTED)
        recorder.close()
    again = await train(config, "training.max_steps=2", resume=first.run.run_id)
    assert (again.run.state, again.run.step) == (RunState.DONE, 2)
    assert [line["step"] for line in again.lines("steps.jsonl")] == [1, 2]
    assert again.attempts == first.attempts
    assert {point.step for point in again.checkpoints} == {2}
    # One that is done has nothing left at all.
    with pytest.raises(HostingError, match="has trained all its 2 steps"):
        await train(config, "training.max_steps=2", resume=first.run.run_id)
