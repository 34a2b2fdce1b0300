"""A project directory with an episode to break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.project import Project, load

CONFIG = """\
recipe = "rl"
[runtime.config]
tasks = "tasks.jsonl"
episode = "my_episode:MyEpisode"
[model]
base_model = "loops-demo-1m"
max_seq_len = 128
[training]
group_size = 4
max_steps = 3
[sampling]
max_tokens = 16
[compute]
scope = "local"
"""

EPISODE = """\
from pydantic import BaseModel, ConfigDict

from engine.episodes import Episode


class MyTask(BaseModel):
    question: str


class MyOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    turns: int = 2


class MyEpisode(Episode[MyTask, MyOptions]):
    async def run(self, sample):
        return None

    async def grade(self, grading):
        return 1.0
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASETEN_LOOPS_SCOPE", "BASETEN_API_KEY", "LOOPS_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Project]:
    """A project with replacements in its episode, and lines added to its config."""

    def make_project(
        *replacements: tuple[str, str],
        more: str = "",
        directory: Path | None = None,
        overrides: tuple[str, ...] = (),
    ) -> Project:
        where = directory or tmp_path
        where.mkdir(parents=True, exist_ok=True)
        episode = EPISODE
        for old, new in replacements:
            assert old in episode, old
            episode = episode.replace(old, new)
        (where / "my_episode.py").write_text(episode)
        (where / "tasks.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n')
        (where / "train.toml").write_text(CONFIG + more)
        return load(where / "train.toml", overrides, working_dir=where)

    return make_project


@pytest.fixture
def refusal() -> Callable[[Project], str]:
    """What loading a project's episode is refused with."""

    def why(project: Project) -> str:
        with pytest.raises(ConfigError) as caught:
            project.episode()
        return str(caught.value)

    return why
