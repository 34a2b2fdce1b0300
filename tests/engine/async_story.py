"""An async run from its rows: what was trained when and under which policies, and a project whose attempts can be held."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.run import train as rl
from engine.store import Store
from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState, RunRow, StepRow
from tests.engine.resumable import CONFIG, make_project

ASYNC = ("training.mode=async", "training.max_steps_off_policy=1")
GROUPS, SIZE, TASKS = 2, 4, 5
SHARES = ("rollout", "train", "held_publish", "publish")

HELD_EPISODE = """
import asyncio
from pathlib import Path

from pydantic import BaseModel

from engine.episodes import Episode, Grading, Sampling

HERE = Path(__file__).parent


class Line(BaseModel):
    name: str
    instruction: str


class Held(Episode[Line, None]):
    # Two replies; between them it waits while there is a file that holds its task. Groups always have variance.
    async def run(self, sample: Sampling) -> None:
        conversation = sample.model.conversation()
        messages = [{"role": "user", "content": self.task.value.instruction}]
        reply = await conversation.generate(messages=messages)
        while (HERE / f"hold-{self.task.value.name}").exists():
            await asyncio.sleep(0.01)
        messages += [{"role": "assistant", "content": reply.content or ""}, {"role": "user", "content": "Again."}]
        await conversation.generate(messages=messages)

    async def grade(self, grading: Grading) -> float:
        return float(grading.attempt % 2)
"""


def make_held_project(directory: Path) -> Path:
    """A project whose group ``g`` works on task ``t<g mod 5>``; ``hold`` holds its attempts."""
    config = make_project(directory, TASKS)
    (directory / "held.py").write_text(HELD_EPISODE)
    text = CONFIG.replace("summing:Sum", "held:Held")
    config.write_text(text.replace("[training]", "[training]\nshuffle_tasks = false"))
    return config


def hold(config: Path, task: int) -> Path:
    """Attempts at this task wait between their two replies until the file is gone."""
    file = config.parent / f"hold-t{task}"
    file.touch()
    return file


@dataclass(frozen=True)
class WhenPhase:
    """Do something whenever the run tells this phase."""

    phase: str
    act: Callable[[], None]

    async def recipe(self, project: Project, handle: RunHandle) -> Outcome:
        """The RL recipe, with this in it."""
        recorder = handle.recorder
        record = recorder.run

        def look(**changes: object) -> None:
            record(**changes)
            if changes.get("phase") == self.phase:
                self.act()

        recorder.run = look  # type: ignore[method-assign]
        return await rl(project, handle)


@dataclass(frozen=True)
class Story:
    """All rows of a run's training."""

    run: RunRow
    steps: list[StepRow]
    groups: list[GroupRow]  # by id; those of evaluations are left out
    attempts: list[AttemptRow]

    @classmethod
    def of(cls, project: Path, run_id: str) -> Story:
        with Store.open(project) as store:
            reader = store.reader()
            groups = sorted(
                (row for row in reader.groups(run_id, 100_000) if row.eval_id is None),
                key=lambda row: row.group_id,
            )
            attempts = [row for group in groups for row in reader.attempts(run_id, group.group_id)]
            return cls(reader.run(run_id), reader.steps(run_id), groups, attempts)

    def of_group(self, group_id: int) -> list[AttemptRow]:
        return [row for row in self.attempts if row.group_id == group_id]

    @property
    def trained(self) -> list[tuple[int, int | None]]:
        """(group, step) of every group that was trained on."""
        return [(row.group_id, row.step) for row in self.groups if row.state is GroupState.TRAINED]

    def check(self, *, steps: int, bound: int, shuffled: bool = True, seed: int = 0) -> None:
        """Every step once; every group decided, on its own task, trained at most once, in order and within the bound."""
        assert [(row.step, row.state, row.policy_version) for row in self.steps] == [
            (step, "done", step) for step in range(1, steps + 1)
        ]
        directory = Path(self.run.run_dir)
        told = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
        assert [line["step"] for line in told] == list(range(1, steps + 1))
        self._check_groups(shuffled, seed)
        assert [step for _, step in self.trained] == [place // GROUPS + 1 for place in range(GROUPS * steps)]
        self._check_ages(bound)
        lines = (directory / "rollouts.jsonl").read_text().splitlines()
        attempts = Counter((line["group_id"], line["attempt"]) for line in map(json.loads, lines))
        assert attempts == Counter((row.group_id, row.attempt) for row in self.attempts)
        assert set(attempts.values()) == {1}

    def _check_groups(self, shuffled: bool, seed: int) -> None:
        assert [row.group_id for row in self.groups] == list(range(len(self.groups)))
        order = TaskOrder(TASKS, seed, shuffled)
        assert [(row.task_index, row.epoch) for row in self.groups] == [
            order.of(row.group_id) for row in self.groups
        ]
        assert {row.state for row in self.groups} <= {
            GroupState.TRAINED,
            GroupState.REJECTED,
            GroupState.LOST,
        }
        open_states = {AttemptState.QUEUED, AttemptState.SAMPLING, AttemptState.ACTING, AttemptState.GRADING}
        assert not [row for row in self.attempts if row.state in open_states or row.ended_at is None]

    def _check_ages(self, bound: int) -> None:
        for group in self.groups:
            if group.state is not GroupState.TRAINED:
                continue
            assert group.step is not None
            assert group.policy_version is not None
            newest = group.step - 1  # the weights that this group's step trained
            assert 0 <= newest - group.policy_version <= bound
            for row in self.of_group(group.group_id):
                if row.version_min is None or row.version_max is None:
                    continue
                assert group.policy_version <= row.version_min <= row.version_max <= newest
                assert newest - row.version_min <= bound

    def check_shares(self) -> None:
        """What a step waited for adds up to the step, and the step fits into the time between its rows' ends."""
        for row in self.steps:
            parts = [row.metrics.get(f"time/{name}", 0.0) for name in SHARES]
            assert abs(sum(parts) - row.metrics["time/step"]) < 1e-6
            shares = [value for name, value in row.metrics.items() if name.startswith("time/share/")]
            assert abs(sum(shares) - 1.0) < 1e-6
            assert row.ended_at is not None
            assert row.metrics["time/step"] <= row.ended_at - row.started_at + 0.01
            assert 0.0 <= row.metrics["slots/busy"] <= 1.0 + 1e-6
