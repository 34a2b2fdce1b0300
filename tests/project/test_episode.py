"""Episodes that cannot be run are explained at load, not in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.project import Project

Make = Callable[..., Project]
Refusal = Callable[[Project], str]


def test_a_good_episode_brings_its_types(make: Make) -> None:
    project = make(more="[runtime.config.options]\nturns = 5\n")
    loaded = project.episode()
    assert loaded.name == "MyEpisode"
    assert loaded.options.turns == 5
    assert [task.value.question for task in project.tasks()] == ["a", "b"]
    assert project.episode() is loaded


def test_an_episode_of_the_cookbook_runs_unchanged(make: Make) -> None:
    assert (
        make(("from engine.episodes import", "from loops_cookbook.episodes import")).episode().name
        == "MyEpisode"
    )


def test_no_options(make: Make, refusal: Refusal) -> None:
    assert make(("MyOptions]", "None]")).episode().options is None
    told = refusal(make(("MyOptions]", "None]"), more="[runtime.config.options]\nx = 1\n"))
    assert "takes no options" in told
    assert "train.toml:15" in told


BROKEN = [
    (
        ("class MyEpisode", "class YourEpisode"),
        ["has no class 'MyEpisode'", "Did you mean 'my_episode:YourEpisode'?"],
    ),
    (("(Episode[MyTask, MyOptions])", ""), ["'my_episode:MyEpisode' is no Episode"]),
    (("class MyEpisode(", "MyEpisode = 3\nclass Other("), ["is no class, but a value of type int"]),
    (("async def grade", "async def grad"), ["defines no grade()"]),
    (("async def run", "def run"), ["run() must be 'async def'"]),
    (("(self, grading)", "(self)"), ["grade() must take one argument"]),
    (
        ("    async def run", "    def __init__(self, task):\n        pass\n\n    async def run"),
        ["cannot be made with (task, options)", "__init__(self, task, options)"],
    ),
    (("class MyTask", "x = missing\nclass MyTask"), ["my_episode.py:6", "NameError", "'missing'"]),
    (("class MyTask", "x = (\nclass MyTask"), ["my_episode.py:6", "SyntaxError"]),
    (("class MyTask", "import not_there\nclass MyTask"), ["my_episode.py:6", "Install not_there"]),
    (("class MyTask", "raise SystemExit(3)\nclass MyTask"), ["my_episode.py:6", "SystemExit"]),
    (("class MyTask", "assert False\nclass MyTask"), ["my_episode.py:6", "AssertionError"]),
    (("[MyTask, ", "[type('Odd', (), {}), "), ["the task type of MyEpisode cannot be validated"]),
]


@pytest.mark.parametrize(("change", "said"), BROKEN, ids=[said[-1][:40] for _, said in BROKEN])
def test_a_broken_episode_is_explained(
    make: Make, refusal: Refusal, change: tuple[str, str], said: list[str]
) -> None:
    told = refusal(make(change))
    assert "Traceback" not in told
    for words in said:
        assert words in told


def test_a_missing_module(make: Make, refusal: Refusal) -> None:
    told = refusal(make(overrides=("runtime.config.episode=my_episod:MyEpisode",)))
    assert "there is no module 'my_episod' beside the config" in told
    assert "Did you mean 'my_episode'?" in told


def test_wrong_options_are_placed(make: Make, refusal: Refusal) -> None:
    told = refusal(make(more="[runtime.config.options]\nturns = 'x'\ntunrs = 1\n"))
    assert "train.toml:16: the option 'turns' is not valid" in told
    assert "train.toml:17: MyEpisode has no option 'tunrs'. Did you mean 'turns'?" in told


def test_malformed_tasks_are_placed(make: Make, tmp_path: Path) -> None:
    project = make()
    (tmp_path / "tasks.jsonl").write_text('{"question": "a"}\n{"question": "b"}\n{"question" "c"}\n')
    with pytest.raises(ConfigError) as caught:
        project.tasks()
    assert "tasks.jsonl:3: the line is not JSON" in str(caught.value)
