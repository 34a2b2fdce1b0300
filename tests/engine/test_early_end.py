"""Runs that end before their steps are done say why: in their row for the application, and in their log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine.recipes.control import RunControl
from engine.store import Store
from engine.store.rows import GroupState, RunState
from tests.engine.resumable import CONFIG, make_project, train

GRADED = """
from pydantic import BaseModel

from engine.episodes import Episode, Grading, Sampling

graded = 0


class Line(BaseModel):
    name: str
    instruction: str


class Solved(Episode[Line, None]):
    # Rewards differ in the first two groups, and are the best ones afterwards.
    async def run(self, sample: Sampling) -> None:
        messages = [{"role": "user", "content": self.task.value.instruction}]
        await sample.model.conversation().generate(messages=messages)

    async def grade(self, grading: Grading) -> float:
        global graded
        graded += 1
        return float(grading.attempt % 2) if graded <= 8 else 1.0


class AlikeAtFirst(Solved):
    async def grade(self, grading: Grading) -> float:
        global graded
        graded += 1
        return 0.5 if graded <= 8 else float(grading.attempt % 2)
"""


def graded_project(directory: Path, episode: str) -> Path:
    config = make_project(directory)
    (directory / "graded.py").write_text(GRADED)
    config.write_text(CONFIG.replace("summing:Sum", f"graded:{episode}"))
    return config


async def test_tasks_that_have_nothing_left_to_teach(tmp_path: Path) -> None:
    config = graded_project(tmp_path, "Solved")
    told = await train(config, "training.max_consecutive_unusable_groups=3", "training.max_steps=50")
    assert told.outcome.state is RunState.DONE
    assert 0 < told.run.step < 50
    assert told.run.info["ended_by"] == "[training] max_consecutive_unusable_groups"


async def test_a_stop_trains_the_step_in_hand_though_its_first_groups_taught_nothing(tmp_path: Path) -> None:
    config = graded_project(tmp_path, "AlikeAtFirst")

    async def stop_at_a_rejected_group(control: RunControl, store: Store) -> None:
        reader = store.reader()
        async with asyncio.timeout(90):
            while True:
                groups = [group for run in reader.runs() for group in reader.groups(run.run_id)]
                if any(group.state is GroupState.REJECTED for group in groups):
                    break
                await asyncio.sleep(0.02)
        control.stop_after_step("ctrl+c")

    told = await train(config, meanwhile=stop_at_a_rejected_group)
    assert told.outcome.state is RunState.STOPPED
    assert told.run.step >= 1
    steps, checkpoints = told.lines("steps.jsonl"), told.checkpoints
    assert [step["step"] for step in steps] == list(range(1, told.run.step + 1))
    assert steps[0]["discard/groups/no_variance"] == 2
    assert [row.step for row in checkpoints] == [told.run.step]
    with Store.open(tmp_path) as store:
        states = {group.state for group in store.reader().groups(told.run.run_id)}
    assert states == {GroupState.TRAINED, GroupState.REJECTED}
