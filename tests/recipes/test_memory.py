"""What a run keeps of its attempts: nothing, once they are trained or rejected and written down."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any

from engine.policy.rendering import PolicyRenderer
from engine.project import load
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl.parts import renderer_of
from engine.store.rows import StepRow
from engine.store.store import Store
from tests.bench.simulated_loops import SimulatedTrainer, simulated_run, simulated_training

RUN = "20260101-000000-memo"
STEPS = 3
EPISODE = """
import weakref
from pydantic import BaseModel
from engine.episodes import Episode, Grading, Sampling

class Line(BaseModel):
    name: str
    instruction: str

class Text(str):
    "A text that can be watched."

class Watched(Episode[Line, None]):
    seen: list = []  # weak references to what an attempt has in memory

    async def run(self, sample: Sampling) -> None:
        conversation = sample.model.conversation()
        messages = [{"role": "user", "content": Text(self.task.value.instruction)}]
        reply = await conversation.generate(messages=messages)
        for each in (self, conversation, messages[0]["content"], conversation._segment.tokens):
            self.seen.append((type(each).__name__, weakref.ref(each)))

    async def grade(self, grading: Grading) -> float:
        return 0.0 if self.task.value.name == "dull" else float(grading.attempt % 2)
"""
CONFIG = """
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "watched_episode:Watched"
[model]
base_model = "loops-demo-1m"
max_seq_len = 2048
renderer_chat_template_kwargs = {{ enable_thinking = false }}
[training]
group_size = 4
groups_per_step = 2
max_steps = {steps}
{more}
[compute]
scope = "local"
"""


def replies(renderer: PolicyRenderer) -> list[list[int]]:
    return [list(renderer.tokenizer.encode("Yes.<|im_end|>", add_special_tokens=False))]


def left(seen: list[tuple[str, weakref.ref[Any]]]) -> list[str]:
    gc.collect()
    return [name for name, reference in seen if reference() is not None]


async def run(tmp_path: Path, more: str) -> list[list[str]]:
    """A run of three steps; what its attempts left in memory when the second and third began, and in the end."""
    (tmp_path / "watched_episode.py").write_text(EPISODE)
    (tmp_path / "train.toml").write_text(CONFIG.format(steps=STEPS, more=more))
    lines = [
        {"name": name, "instruction": f"Say {name}."} for name in ("one", "dull", "two", "three", "four")
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    renderer = await asyncio.to_thread(renderer_of, project)
    seen: list[tuple[str, weakref.ref[Any]]] = project.episode().cls.seen  # type: ignore[attr-defined]
    found: list[list[str]] = []
    untrained: list[set[str]] = []
    with Store.open(tmp_path) as store:
        store.create_run(simulated_run(RUN, project, store))
        recorder, ended = store.recorder(RUN), 0
        record = recorder.step

        def step(row: StepRow) -> None:
            nonlocal ended
            record(row)
            if row.state == "training":
                ended = len(seen)  # in sync mode nothing else has begun
                recorder.flush_blocking()
                untrained.append(set(left(seen[:ended])))
            if row.state == "collecting" and row.step > 1:
                recorder.flush_blocking()
                found.append(left(seen[:ended]))

        recorder.step = step  # type: ignore[method-assign]
        handle = RunHandle(RUN, recorder, RunControl(), LoopsEndpoint("local", None, None), store=store)
        trainer = SimulatedTrainer(replies(renderer), speed=1000.0)
        outcome = await simulated_training(project, handle, trainer, renderer)
        assert outcome.steps == STEPS
        await asyncio.to_thread(recorder.close)
    assert len(seen) > STEPS * 2 * 4 * 4  # and the dull ones
    found.append(left(seen))
    project.close()
    if "async" not in more:
        # Once they are written, attempts that are still to be trained on are tokens, and nothing that was said.
        assert untrained == [{"array"}] * STEPS
    return found


async def test_nothing_of_an_attempt_stays_once_its_step_is_trained(tmp_path: Path) -> None:
    assert await run(tmp_path, "") == [[], [], []]


async def test_nothing_of_an_attempt_stays_after_an_async_run(tmp_path: Path) -> None:
    assert (await run(tmp_path, 'mode = "async"'))[-1] == []
