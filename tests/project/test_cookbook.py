"""A config and an episode written for the Loops cookbook are checked and trained as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.config.problems import ConfigError
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


# The library's part of the cookbook's readme, without what starts to check and train.
PROGRAM = """\
import asyncio
from pathlib import Path

from loops_cookbook.project import load

project = load("train.toml", env_file=".env", overrides={"training.max_steps": 5})
print("\\n".join(project.describe()))
print(project.path.name, project.source.name, project.config.training.max_steps)
print(asyncio.iscoroutinefunction(project.check), asyncio.iscoroutinefunction(project.train))

import loops_cookbook

print(Path(loops_cookbook.__path__[0]).is_dir())
for statement in ("import loops_cookbook.harbor", "from loops_cookbook.rl import Run", "from loops_cookbook import llm"):
    try:
        exec(statement)
    except ImportError as error:
        print(error)
"""


def test_a_program_written_for_the_cookbook(tmp_path: Path) -> None:
    """It imports nothing else first: what installing loops-tui puts on Python's path is what answers."""
    for name, text in (
        ("train.toml", CONFIG),
        ("direct_episode.py", EPISODE),
        (".env", ""),
        ("program.py", PROGRAM),
    ):
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"Config: {tmp_path / 'train.toml'}"
    assert lines[-6:-3] == ["train.toml train.toml 5", "True True", "True"]
    refused = (
        "is not available in this version of loops-tui; of the cookbook, only loops_cookbook.episodes and "
    )
    for line, name in zip(lines[-3:], ("harbor", "rl", "llm"), strict=True):
        assert line.startswith(f"loops_cookbook.{name} {refused}")


# The sections of the tool agent's config, as its guide prints them.
TOOL_AGENT = """\
recipe = "rl"

[runtime]
factory = "loops_cookbook.episodes:create_runtime"

[runtime.config]
tasks = "tasks.jsonl"
episode = "tool_episode:ToolEpisode"
# After a delivered reply: graded from the sandbox state. Before one: unversioned.
agent_timeout_seconds = 180

# The agent's own limits, validated at check as its ToolOptions.

[runtime.config.options]
max_turns = 12
command_timeout_seconds = 20
max_output_chars = 2000

# One Blaxel sandbox per episode, provisioned before setup() and released by the run.

[runtime.config.sandbox]
provider = "blaxel"
memory_mb = 2048   # on Blaxel's base image, the default image
ttl = "1h"         # required: it must outlast one episode

[model]
base_model = "Qwen/Qwen3.5-4B"
lora_rank = 8
max_seq_len = 8192   # the whole conversation, tool results included
renderer_chat_template_kwargs = { enable_thinking = false }

[training]
mode = "sync"
group_size = 16
max_group_losses = 1   # a cloud sandbox can fail; its group still trains
groups_per_step = 1
max_steps = 5
max_consecutive_unusable_groups = 20   # stop if every group scores alike
learning_rate = 0.0001
max_steps_off_policy = 0
max_policy_delta_in_trajectory = 0
"""


def test_the_tool_agents_config_is_accepted_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASETEN_LOOPS_SCOPE", "deployment")  # as the guide's .env says it
    (tmp_path / "train_blaxel.toml").write_text(TOOL_AGENT)
    project = load(tmp_path / "train_blaxel.toml", working_dir=tmp_path)
    sandbox = project.rl.runtime.config.sandbox
    assert sandbox is not None
    assert (sandbox.provider, sandbox.memory_mb, sandbox.ttl) == ("blaxel", 2048, "1h")
    assert project.rl.runtime.config.options["max_turns"] == 12
    assert project.scope == "dedicated"


@pytest.mark.parametrize(
    ("was", "written", "line", "told"),
    [
        ("loops_cookbook.episodes:create_runtime", "loops_cookbook.harbor:create_runtime", 4, "not available"),
        ("# The agent's own", "execution_sandbox = { provider = 'blaxel' }\n#", 12, "not available in this version"),
        ("# The agent's own", "grading_sandbox = { provider = 'blaxel' }\n#", 12, "not available in this version"),
        ("[model]", "[output]\nwandb_project = 'tools'\n[model]", 27, "not available in this version"),
        ("[model]", "[console]\nenabled = true\n[model]", 26, "not available in this version"),
        ("[model]", "[compute]\nreuse = true\n[model]", 27, "not available in this version"),
        ('provider = "blaxel"', 'provider = "daytona"', 22, "It can be 'local' or 'blaxel'"),
    ],
)  # fmt: skip
def test_what_is_not_supported_says_so_at_its_line(
    tmp_path: Path, was: str, written: str, line: int, told: str
) -> None:
    assert was in TOOL_AGENT
    (tmp_path / "train.toml").write_text(TOOL_AGENT.replace(was, written, 1))
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "train.toml", working_dir=tmp_path)
    assert f"train.toml:{line}: " in str(refused.value)
    assert told in str(refused.value)
