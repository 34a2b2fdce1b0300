"""A config and an episode written for the Loops cookbook are checked and trained as they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.project import load
from engine.store.rows import RunState

# As the cookbook's guide prints it.
EPISODE = '''\
from pydantic import BaseModel, ConfigDict

from loops_cookbook.episodes import Episode, Grading, Model, Sampling, Task


class AnswerTask(BaseModel):
    """One line of the dataset."""

    model_config = ConfigDict(extra="forbid")

    name: str
    instruction: str
    answer: str


async def ask(model: Model, instruction: str) -> str:
    conversation = model.conversation()
    reply = await conversation.generate(
        messages=[{"role": "user", "content": instruction}]
    )
    return (reply.content or "").strip()


class AnswerEpisode(Episode[AnswerTask, None]):
    grading_retries = 2  # grade() has no side effects, so it's safe to run again

    def __init__(self, task: Task[AnswerTask], options: None) -> None:
        super().__init__(task, options)
        self.answer: str | None = None  # scored as wrong if the model never replies

    async def run(self, sample: Sampling) -> None:
        self.answer = await ask(sample.model, self.task.value.instruction)

    async def grade(self, grading: Grading) -> float:
        return float(self.answer == self.task.value.answer)
'''
CONFIG = """\
recipe = "rl"

[runtime]
factory = "loops_cookbook.episodes:create_runtime"

[runtime.config]
tasks = "tasks.jsonl"
episode = "direct_episode:AnswerEpisode"

[model]
base_model = "loops-demo-1m"
lora_rank = 8
max_seq_len = 128
renderer_chat_template_kwargs = { enable_thinking = false }

[training]
mode = "sync"
group_size = 16
groups_per_step = 1
max_steps = 2
max_group_losses = 2
max_consecutive_unusable_groups = 30
learning_rate = 0.003
loss = "cispo"

[sampling]
temperature = 1.0
max_tokens = 16

[compute]
scope = "local"
keep_run = false

[output]
output_dir = "runs"
"""


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
async def test_the_episode_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASETEN_LOOPS_SCOPE", raising=False)
    (tmp_path / "direct_episode.py").write_text(EPISODE)
    task = {"name": "game", "instruction": "Name the hidden game.", "answer": "rugby"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "train.toml").write_text(CONFIG)
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    report = await project.check()
    assert report.ok, report.describe()
    assert "grading retries 2 (AnswerEpisode.grading_retries); group grading false" in "\n".join(report.lines)
    try:
        outcome = await project.train()
    finally:
        project.close()
    assert outcome.state is RunState.DONE
    assert outcome.steps == 2
