"""Broken configs, tasks and episodes of the kinds that users of such tools report: each gets one message that names the
file, the line or key, the cause and the remedy; none is accepted, none ends in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.config.problems import ConfigError
from engine.config.report import Finding, Severity
from engine.project import load
from tests.project.conftest import CONFIG, EPISODE

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

type Change = Callable[[Path], None]
TASKS = '{"question": "a"}\n{"question": "b"}\n'


def config(old: str, new: str = "", more: str = "") -> Change:
    """A config with one place changed."""

    def change(where: Path) -> None:
        text = (where / "train.toml").read_text()
        assert old in text, old
        (where / "train.toml").write_text(text.replace(old, new, 1) + more)

    return change


def added(text: str) -> Change:
    return config("", "", text)


def tasks(text: str | bytes) -> Change:
    def change(where: Path) -> None:
        (where / "tasks.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())

    return change


def episode(old: str, new: str) -> Change:
    def change(where: Path) -> None:
        assert old in EPISODE, old
        (where / "my_episode.py").write_text(EPISODE.replace(old, new))

    return change


def gone(name: str) -> Change:
    return lambda where: (where / name).unlink()


SANDBOX = "[runtime.config.sandbox]\n"
BROKEN: dict[str, tuple[Change, str]] = {
    # keys that nobody knows, or that belong elsewhere
    "a misspelt key": (config("max_steps", "max_step"), "max_steps"),
    "a misspelt table": (config("[sampling]", "[samplng]"), "sampling"),
    "a key of another tool": (config("max_steps = 3", "max_steps = 3\nbatch_size = 8"), "batch_size"),
    "a key in the wrong table": (config("max_tokens = 16", "max_tokens = 16\nlearning_rate = 0.1"), "[training]"),
    "a key at the top": (config('recipe = "rl"', 'recipe = "rl"\nseed = 1'), "seed"),
    "a table of the other recipe": (added('[data]\ntrain = "x.jsonl"\n'), "sft"),
    "a key of a later version": (config("[compute]", "[compute]\nreuse = true"), "not available"),
    "dashes for underscores": (config("max_steps = 3", "max_steps = 3\ngroup-losses = 1"), "group-losses"),
    # values
    "a number as text": (config("max_steps = 3", 'max_steps = "3"'), "whole number"),
    "a fraction for a count": (config("max_steps = 3", "max_steps = 2.5"), "whole number"),
    "a truth for a count": (config("max_steps = 3", "max_steps = true"), "whole number"),
    "no steps": (config("max_steps = 3", "max_steps = 0"), "at least 1"),
    "a group of one": (config("group_size = 4", "group_size = 1"), "at least 2"),
    "a negative rate": (config("max_steps = 3", "max_steps = 3\nlearning_rate = -1.0"), "more than 0"),
    "a rate that is no number": (config("max_steps = 3", "max_steps = 3\nlearning_rate = nan"), "learning_rate"),
    "temperature 0": (config("max_tokens = 16", "max_tokens = 16\ntemperature = 0"), "more than 0"),
    "top_p above 1": (config("max_tokens = 16", "max_tokens = 16\ntop_p = 1.5"), "at most 1"),
    "a loss that there is not": (config("max_steps = 3", 'max_steps = 3\nloss = "grpo"'), "loss"),
    "a mode that there is not": (config("max_steps = 3", 'max_steps = 3\nmode = "turbo"'), "mode"),
    "a recipe that there is not": (config('"rl"', '"dpo"'), "recipe"),
    "a scope that there is not": (config('"local"', '"cloud"'), "scope"),
    "a provider that there is not": (added(f'{SANDBOX}provider = "docker"\n'), "provider"),
    "a ttl that is no duration": (added(f'{SANDBOX}ttl = "soon"\n'), "ttl"),
    "a trace that there is not": (added('[output]\ntrace = "all"\n'), "trace"),
    "a name with a slash": (added('[output]\nname = "a/b"\n'), "name"),
    "no memory to speak of": (added(f"{SANDBOX}memory_mb = 1\n"), "at least 32"),
    "an empty stop": (config("max_tokens = 16", 'max_tokens = 16\nstop = [""]'), "stop"),
    "a table for a value": (config("max_steps = 3", "max_steps = { a = 1 }"), "max_steps"),
    "a list for a path": (config('"tasks.jsonl"', '["tasks.jsonl"]'), "tasks"),
    # what is missing
    "no recipe": (config('recipe = "rl"\n'), "recipe"),
    "no model": (config('base_model = "loops-demo-1m"\n'), "base_model"),
    "no length": (config("max_seq_len = 128\n"), "max_seq_len"),
    "no number of steps": (config("max_steps = 3\n"), "max_steps"),
    "no episode": (config('episode = "my_episode:MyEpisode"\n'), "episode"),
    "no tasks": (config('tasks = "tasks.jsonl"\n'), "tasks"),
    # keys that contradict each other
    "replies longer than the context": (config("max_tokens = 16", "max_tokens = 128"), "room for a prompt"),
    "more losses than attempts": (config("max_steps = 3", "max_steps = 3\nmax_group_losses = 3"), "at least 2"),
    "replicas of a local run": (config('scope = "local"', 'scope = "local"\nreplicas = 2'), "dedicated"),
    "spot on serverless": (config('scope = "local"', 'scope = "serverless"\nspot = true'), "dedicated"),
    "a budget without prices": (added("[budget]\nmax_cost = 3.0\n"), "prices"),
    "a local sandbox's image": (added(f'{SANDBOX}image = "x"\n'), "blaxel"),
    "a ttl shorter than an attempt": (added(f'{SANDBOX}ttl = "5m"\n'), "shorter than one attempt"),
    "an evaluation without room": (added('[eval]\ntasks = "tasks.jsonl"\nmax_tokens = 128\n'), "room for a prompt"),
    # files
    "no such tasks file": (gone("tasks.jsonl"), "no such tasks file"),
    "an empty tasks file": (tasks("\n"), "holds no task"),
    "tasks that are no JSON": (tasks('{"question": "a"}\nquestion b\n'), ":2"),
    "tasks in one array": (tasks('[{"question": "a"}]'), ":1"),
    "a task without a field": (tasks('{"question": "a"}\n{"qestion": "b"}\n'), ":2"),
    "a field of the wrong type": (tasks('{"question": 3}\n'), ":1"),
    "a task id twice": (tasks('{"id": "x", "question": "a"}\n{"id": "x", "question": "b"}\n'), ":2"),
    "tasks in Latin 1": (tasks('{"question": "é"}'.encode("latin-1")), "UTF-8"),
    "a half line at the end": (tasks('{"question": "a"}\n{"quest'), ":2"),
    "no such held-out file": (added('[eval]\ntasks = "held.jsonl"\n'), "held.jsonl"),
    "a model that there is not": (config("loops-demo-1m", "loops-demo-2m"), "loops-demo-1m"),
    "a model directory that there is not": (config('"loops-demo-1m"', '"./model"'), "does not exist"),
    "a context that the model lacks": (config("max_seq_len = 128", "max_seq_len = 99999"), "at most 2048"),
    "a renderer that there is not": (config("max_seq_len = 128", 'max_seq_len = 128\nrenderer = "qwen33"'), "qwen3"),
    "a checkpoint that there is not": (config("max_seq_len = 128", 'max_seq_len = 128\nfrom_checkpoint = "no"'), "no"),
    # the episode
    "no such module": (gone("my_episode.py"), "my_episode"),
    "no such class": (config("MyEpisode", "MyEpisod"), "MyEpisode"),
    "an episode that is no class": (config("my_episode:MyEpisode", "my_episode.MyEpisode"), "module:Class"),
    "a module that cannot be read": (episode("class MyTask", "class MyTask("), "my_episode.py"),
    "a module that raises": (episode("class MyTask", "1 / 0\nclass MyTask"), "ZeroDivisionError"),
    "an import that is missing": (episode("class MyTask", "import nowhere_at_all\nclass MyTask"), "nowhere_at_all"),
    "a class that is no episode": (config("MyEpisode", "MyTask"), "Episode"),
    "an option that there is not": (added("[runtime.config.options]\nturn = 3\n"), "turns"),
    "an option of the wrong type": (added('[runtime.config.options]\nturns = "many"\n'), "turns"),
    # TOML itself
    "a quote that is not closed": (config('"tasks.jsonl"', '"tasks.jsonl'), "TOML"),
    "a table twice": (added("[model]\n"), "TOML"),
    "no value": (config("max_steps = 3", "max_steps ="), "TOML"),
}  # fmt: skip


async def problems_of(where: Path) -> list[Finding]:
    """What loading or checking refuses the project for."""
    try:
        project = load(where / "train.toml", working_dir=where)
    except ConfigError as error:
        return [Finding.of(Severity.ERROR, problem) for problem in error.problems]
    try:
        report = await project.check()
    finally:
        project.close()
    json.dumps(report.to_json())
    return [finding for finding in report.findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN.keys())
async def test_it_is_refused_with_one_message(tmp_path: Path, change: Change, said: str) -> None:
    (tmp_path / "my_episode.py").write_text(EPISODE)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    (tmp_path / "train.toml").write_text(CONFIG)
    change(tmp_path)
    [finding] = await problems_of(tmp_path)
    sentence = str(finding)
    assert said in sentence
    assert str(tmp_path) in sentence  # the file
    assert finding.line is not None or finding.key is not None or "TOML" in sentence or ".jsonl" in sentence
    assert (
        finding.remedy or "Did you mean" in sentence or " must be " in sentence or finding.line is not None
    ), sentence
    assert "Traceback" not in sentence
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 600


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 60
