"""A small project whose runs can be compared: several tasks, in an order that matters, rewards that always differ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.project import Project, load
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl.run import train as rl
from engine.store import Store
from engine.store.rows import CheckpointRow, RunRow, StepRow

EPISODE = """
from pydantic import BaseModel
from engine.episodes import Episode, Grading, Sampling

class Line(BaseModel):
    name: str
    instruction: str

class Sum(Episode[Line, None]):
    async def run(self, sample: Sampling) -> None:
        conversation = sample.model.conversation()
        reply = await conversation.generate(messages=[{"role": "user", "content": self.task.value.instruction}])
        self.text = reply.content or ""

    async def grade(self, grading: Grading) -> float:
        return sum(self.text.encode()) % 13 / 12
"""
CONFIG = """
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "summing:Sum"
[model]
base_model = "loops-demo-1m"
lora_rank = 4
max_seq_len = 128
renderer_chat_template_kwargs = { enable_thinking = false }
[training]
group_size = 4
groups_per_step = 2
max_steps = 6
learning_rate = 0.003
[sampling]
max_tokens = 8
[compute]
scope = "local"
"""


def make_project(directory: Path, tasks: int = 5) -> Path:
    """Write the project; returns its config."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summing.py").write_text(EPISODE)
    (directory / "train.toml").write_text(CONFIG)
    lines = [json.dumps({"name": f"t{n}", "instruction": f"Say a word about {n}."}) for n in range(tasks)]
    (directory / "tasks.jsonl").write_text("\n".join(lines) + "\n")
    return directory / "train.toml"


@dataclass
class Told:
    """What a run left behind."""

    outcome: Outcome
    run: RunRow
    checkpoints: list[CheckpointRow]

    @property
    def directory(self) -> Path:
        return Path(self.run.run_dir)

    def lines(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / name).read_text().splitlines()]

    @property
    def attempts(self) -> list[tuple[Any, ...]]:
        """Every attempt that was made, with what it was worth."""
        keys = (
            "step",
            "group_id",
            "attempt",
            "task_id",
            "group_state",
            "reward",
            "advantage",
            "sampled_tokens",
        )
        return sorted(tuple(line[key] for key in keys) for line in self.lines("rollouts.jsonl"))

    @property
    def curve(self) -> list[tuple[int, float]]:
        return [(line["step"], line["reward/mean_with_unusable"]) for line in self.lines("steps.jsonl")]


def open_project(config: Path, *overrides: str) -> Project:
    return load(config, list(overrides), working_dir=config.parent)


class Hooked(Protocol):
    """A recipe with something in it."""

    async def recipe(self, project: Project, handle: RunHandle) -> Outcome:
        """Train to the end."""
        ...


@dataclass(frozen=True)
class When:
    """Do something the moment a step enters a state: "collecting", "training" or "done"."""

    step: int
    state: str
    act: Callable[[RunControl], None]

    async def recipe(self, project: Project, handle: RunHandle) -> Outcome:
        """The RL recipe, with this in it."""
        recorder = handle.recorder
        record = recorder.step

        def look(row: StepRow) -> None:
            record(row)
            if (row.step, row.state) == (self.step, self.state):
                self.act(handle.control)

        recorder.step = look
        return await rl(project, handle)


async def train(
    config: Path,
    *overrides: str,
    resume: str | None = None,
    when: Hooked | None = None,
    meanwhile: Callable[[RunControl, Store], Any] | None = None,
) -> Told:
    """Train to the end; ``meanwhile`` is awaited beside it."""
    control = RunControl()
    project = open_project(config, *overrides)
    recipe = when.recipe if when is not None else None
    with Store.open(config.parent) as store:
        beside = asyncio.create_task(meanwhile(control, store)) if meanwhile is not None else None
        try:
            outcome = await project.train(
                project_dir=config.parent, control=control, resume=resume, recipe=recipe
            )
        finally:
            project.close()
            if beside is not None:
                await asyncio.wait_for(beside, 120)
        reader = store.reader()
        run = next(row for row in reader.runs() if resume is None or row.run_id == resume)
        return Told(outcome, run, reader.checkpoints(run.run_id))


async def until_step(store: Store, step: int) -> RunRow:
    """Wait until the newest run has finished so many steps."""
    reader = store.reader()
    async with asyncio.timeout(90):
        while True:
            rows = reader.runs()
            if rows and not rows[0].state.final and rows[0].step >= step:
                return rows[0]
            await asyncio.sleep(0.02)
