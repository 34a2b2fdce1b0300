"""The library's face: load a config, check it, train it.

    from engine.project import load

    project = load("train.toml", overrides={"training.max_steps": 5})
    report = await project.check()
    print("\\n".join(report.describe()))
    outcome = await project.train()

Nothing here configures logging or owns an event loop; what is slow to import is imported when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.checking.episode import LoadedEpisode, load_episode
from engine.config.any_recipe import AnySettings
from engine.config.loading import LoadedConfig, load_config
from engine.config.local_models import model_directory
from engine.config.modules import ProjectModules
from engine.config.overrides import Overrides
from engine.config.printable import one_line
from engine.config.problems import ConfigError, Problem
from engine.config.report import CheckReport
from engine.config.settings import EffectiveScope, Settings
from engine.config.sft import SftSettings
from engine.config.tasks import LoadedTask, load_tasks

if TYPE_CHECKING:
    from engine.checking.starting import Reach
    from engine.recipes.contract import Outcome

__all__ = ["CheckReport", "ConfigError", "Problem", "Project", "load"]

_LONGEST_LINE = 16_384  # several paths fit into it


class Project:
    """A config, and beside it the episode and the tasks that it names.

    Attributes:
        path: the config as it was named, absolute.
        source: the file it is, links followed; its paths and modules lie beside it.
        config: the validated settings, paths absolute.
        goes_on: whether it is resumed from a checkpoint of its own, so that other first weights do not matter.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        self.loaded = loaded
        self.path: Path = loaded.path
        self.source: Path = loaded.source
        self.config: AnySettings = loaded.settings
        self.modules = ProjectModules(loaded.directory)
        self.goes_on = False
        self._episode: LoadedEpisode | None = None
        self._tasks: list[LoadedTask] | None = None

    @property
    def rl(self) -> Settings:
        """The settings of an RL config. Raises TypeError for another recipe's."""
        return self.loaded.rl

    @property
    def sft(self) -> SftSettings:
        """The settings of an SFT config. Raises TypeError for another recipe's."""
        return self.loaded.sft

    @property
    def directory(self) -> Path:
        """The directory of the config's file."""
        return self.loaded.directory

    @property
    def working_dir(self) -> Path:
        """The working directory when the config was loaded; the store and the runs lie below it."""
        return self.loaded.working_dir

    @property
    def scope(self) -> EffectiveScope:
        """Where the run goes: "local", "serverless", "dedicated", or "auto" where Loops chooses."""
        return self.loaded.scope

    @property
    def environ(self) -> Mapping[str, str]:
        """The process's variables over those of the .env files; [compute] base_url counts as LOOPS_BASE_URL."""
        return self.loaded.environ

    @property
    def name(self) -> str:
        """The name of this config's runs."""
        return self.runs_dir.name

    @property
    def runs_dir(self) -> Path:
        """Where this config's runs go: ``<output_dir>/<name>``."""
        return self.loaded.runs_dir

    @property
    def config_toml(self) -> str:
        """The config as it runs, overrides applied, paths absolute, without secrets."""
        return self.loaded.as_run()

    @property
    def model_dir(self) -> Path | None:
        """The directory of a local run's model; None for a model on Baseten or one that is not there."""
        return model_directory(self.config.model.base_model) if self.scope == "local" else None

    @property
    def tokenizer_source(self) -> str:
        """What the tokenizer is loaded from: [model] tokenizer, the local model's directory or the model's name."""
        model = self.config.model
        return model.tokenizer or str(self.model_dir or model.base_model)

    def episode(self) -> LoadedEpisode:
        """The episode class, imported at the first call, and its options. Raises ConfigError."""
        if self._episode is None:
            self._episode = load_episode(self.loaded, self.modules)
        return self._episode

    def tasks(self) -> list[LoadedTask]:
        """Every task, validated as the episode's task type. Raises ConfigError with all bad lines."""
        if self._tasks is None:
            self._tasks = load_tasks(self.rl.runtime.config.tasks, self.episode().task_type)
        return self._tasks

    def describe(self) -> list[str]:
        """What the config used: the lines that a check prints first and a run's log begins with."""
        link = f" -> {self.source}" if self.source != self.path else ""
        env = ", ".join(str(file) for file in self.loaded.env_files) or "none"
        lines = [
            f"Config: {self.path}{link}",
            f"  paths, modules: beside {self.directory}",
            f"  .env: {env}",
            f"  runs: {self.runs_dir}",
        ]
        if self.loaded.overrides:
            told = ", ".join(f"{key} = {value!r}" for key, value in self.loaded.overrides.items())
            lines.append(f"  overrides: {told}")
        return [one_line(line, _LONGEST_LINE) for line in lines]

    async def check(
        self,
        loops: bool = True,
        told: Callable[[str], None] = lambda _: None,
        local: Reach | None = None,
    ) -> CheckReport:
        """Look at everything that can be known before a run starts, without starting a trainer or a sandbox.

        ``loops=False`` leaves out the questions to Baseten. ``told`` hears, from any thread, how far a long check is.
        ``local`` reaches the project's own Loops server (``engine.hosting`` gives it), to look for first weights there.
        """
        from engine.checking.check import check

        return await check(self, loops=loops, told=told, local=local)

    async def train(self, **host_options: Any) -> Outcome:
        """Train to the end in this process and return the outcome; ``engine.hosting`` says what it takes."""
        from engine import hosting

        return await hosting.train(self, **host_options)

    def close(self) -> None:
        """Forget the modules that this project imported."""
        self.modules.close()


def load(
    path: str | os.PathLike[str],
    overrides: Overrides = None,
    env_file: str | os.PathLike[str] | None = None,
    working_dir: str | os.PathLike[str] | None = None,
    *,
    dotenv: bool = False,
    text: str | None = None,
) -> Project:
    """Load a TOML or JSON config and make its directory importable.

    Args:
        path: relative to the working directory; a bundled example's path works from any directory.
        overrides: dotted keys with values, or texts such as ``training.max_steps=5``. Paths in them are relative to
            the working directory; a table replaces the one that the config has.
        env_file: a .env file to read, relative to the config.
        working_dir: instead of the process's own.
        dotenv: also read ``.env`` beside the config and in the working directory, as the commands do.
        text: what an editor holds of the config; it counts instead of what the file says.

    Raises:
        ConfigError: with every problem found, each with file, line and remedy.
    """
    return Project(
        load_config(path, overrides, env_file=env_file, dotenv=dotenv, working_dir=working_dir, text=text)
    )
