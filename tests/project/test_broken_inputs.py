"""Broken configs, tasks and episodes of the kinds that users of such tools report: each gets one message that names the
file, the line or key, the cause and the remedy; none is accepted, none ends in a traceback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from engine.config.problems import ConfigError
from engine.config.report import Finding, Severity
from engine.project import load
from tests.project.conftest import CONFIG, EPISODE

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

type Change = Callable[[Path], object]
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


def instead(name: str, make: Callable[[Path], object]) -> Change:
    """Something else under the name of a file."""

    def change(where: Path) -> None:
        (where / name).unlink()
        make(where / name)

    return change


def again(encoding: str, name: str = "train.toml") -> Change:
    """A file in another encoding."""
    return lambda where: (where / name).write_bytes((where / name).read_text().encode(encoding))


def all_of(*changes: Change) -> Change:
    def change(where: Path) -> None:
        for one in changes:
            one(where)

    return change


def model_directory(config_json: str) -> Change:
    def change(where: Path) -> None:
        (where / "model").mkdir()
        (where / "model" / "config.json").write_text(config_json)
        config('"loops-demo-1m"', '"./model"')(where)

    return change


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
    "a key of the top in a table": (
        all_of(config('recipe = "rl"\n'), added('recipe = "rl"\n')), "It belongs at the top level"),
    "a key for the service": (config("[compute]", '[compute]\napi_key = "sk-1"'), ".env file"),
    "a penalty that there is not": (config("max_steps = 3", "max_steps = 3\nkl_coef = 0.1"), "no KL penalty"),
    "an adapter's scale": (config("max_seq_len = 128", "max_seq_len = 128\nlora_alpha = 16"), "only its rank is set"),
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
    "a number without end": (config("max_steps = 3", "max_steps = 1" + "0" * 30), "too large"),
    "a number that overflows a column": (config("max_steps = 3", "max_steps = 1000000000000000000"), "too large"),
    "a time without end": (config('tasks = "', 'agent_timeout_seconds = inf\ntasks = "'), "finite"),
    "a budget that is no number": (added("[budget]\nmax_hours = nan\n"), "finite"),
    "a date for a count": (config("max_steps = 3", "max_steps = 2024-01-01"), "2024-01-01"),
    "a truth for a rate": (config("max_steps = 3", "max_steps = 3\nlearning_rate = true"), "must be a number"),
    "a number for a truth": (config('scope = "local"', 'scope = "local"\nkeep_run = 1'), "true or false"),
    "a number for a name": (config('"loops-demo-1m"', "3"), "text in quotes"),
    "an empty name": (config('"loops-demo-1m"', '""'), "is empty"),
    "an output directory in the cloud": (added('[output]\noutput_dir = "s3://bucket/runs"\n'), "Name a directory"),
    "a variable in a path": (added('[output]\noutput_dir = "$HOME/runs"\n'), "'$HOME', and variables are not looked up"),
    "the home of nobody": (config('"tasks.jsonl"', '"~nobody-of-that-name/tasks.jsonl"'), "nobody here is called that"),
    "a number among texts": (config("max_tokens = 16", 'max_tokens = 16\nstop = ["a", 2]'), "[sampling] stop must be text"),
    "a bound that others call otherwise": (added("[budget]\nmax_usd = 3\n"), "Here it is [budget] max_cost"),
    "a tokenizer's directory without one": (
        all_of(config("max_seq_len = 128", 'max_seq_len = 128\ntokenizer = "./tok"'), lambda where: (where / "tok").mkdir()),
        "no tokenizer.json"),
    "JSON in a TOML file": (lambda where: (where / "train.toml").write_text('{"recipe": "rl",}'), "ends in .json"),
    "a comment of another language at the top": (config('recipe = "rl"', '// mine\nrecipe = "rl"'), "begins with #"),
    "an empty path": (config('"tasks.jsonl"', '""'), "is empty"),
    "an output directory without a name": (added('[output]\noutput_dir = " "\n'), "is empty"),
    "a NUL in a path": (config('"tasks.jsonl"', '"tas\\u0000ks.jsonl"'), "NUL"),
    "a NUL in a name": (added('[output]\nname = "a\\u0000b"\n'), "NUL"),
    "a table in a list": (config("[model]", "[[model]]"), "must be a table"),
    "a key in other letters": (config("max_steps = 3", '"größe" = 1\nmax_steps = 3'), "größe"),
    "a key in letters that look alike": (config("max_steps", '"m\u0430x_steps"'), "max_steps"),
    "an escape sequence in a key": (config("max_steps = 3", '"\\u001b[31m" = 1\nmax_steps = 3'), "x1b"),
    "a loss's setting as text": (
        config("max_steps = 3", 'max_steps = 3\nloss_config = { clip_low_threshold = "x" }'), "must be a number"),
    "a loss's setting that is no number": (
        config("max_steps = 3", "max_steps = 3\nloss_config = { clip_low_threshold = nan }"), "finite"),
    "a setting that the chat template has not": (
        config("max_seq_len = 128", "max_seq_len = 128\nrenderer_chat_template_kwargs = { enable_thinkin = true }"),
        "enable_thinkin"),
    "a setting that the renderer has not": (
        config("max_seq_len = 128", "max_seq_len = 128\nrenderer = 'qwen3'\nrenderer_chat_template_kwargs = { x = 1 }"),
        "Write what the template has"),
    "a renderer that nobody has": (config("max_seq_len = 128", "max_seq_len = 128\nrenderer = 'custom'"), "no renderer"),
    "a model in one file": (
        all_of(config('"loops-demo-1m"', '"./model.gguf"'), lambda where: (where / "model.gguf").write_bytes(b"GGUF")),
        "safetensors"),
    "a path of Windows": (config('"tasks.jsonl"', '"C:\\Users\\x\\tasks.jsonl"'), "two backslashes"),
    "one text for a list": (config("max_tokens = 16", 'max_tokens = 16\nstop = "x"'), "a list"),
    "an adapter of rank 0": (config("max_seq_len = 128", "max_seq_len = 128\nlora_rank = 0"), "at least 1"),
    "a ttl as a number": (added(f"{SANDBOX}ttl = 3600\n"), "text in quotes"),
    "a price below nothing": (added("[prices]\nsandbox_gb_hour = -1.0\n"), "at least 0"),
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
    "an older policy in sync mode": (config("max_steps = 3", "max_steps = 3\nmax_steps_off_policy = 2"), "sync"),
    "a context too short for a prompt": (config("max_seq_len = 128", "max_seq_len = 8"), "at least 16"),
    "options for an episode that takes none": (
        all_of(episode("MyOptions]", "None]"), added("[runtime.config.options]\nturns = 3\n")), "takes no options"),
    # files
    "no such tasks file": (gone("tasks.jsonl"), "no such tasks file"),
    "a pattern of tasks": (config('"tasks.jsonl"', '"*.jsonl"'), "train.toml:"),
    "tasks with bare keys": (tasks('{question: "a"}\n'), "Put each key in double quotes"),
    "tasks in curly quotes": (tasks("{\u201cquestion\u201d: 3}\n"), "Use straight quotes"),
    "a path of Windows in a task": (tasks('{"question": "C:\\Users"}\n'), "Write two backslashes"),
    "a tab in a task's text": (tasks('{"question": "a\tb"}\n'), "Write it as an escape, such as \\t"),
    "a task that ends too soon": (tasks('{"question": "a}\n'), "Close the quote"),
    "a comma after each task": (tasks('{"question": "a"},\n'), "Remove the comma"),
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
    "tasks in UTF-16": (again("utf-16", "tasks.jsonl"), "UTF-16"),
    "tasks that are compressed": (tasks(b"\x1f\x8b\x08\x00abc"), "gzip"),
    "tasks in Parquet": (tasks(b"PAR1\x15\x04"), "Parquet"),
    "tasks in one array over several lines": (tasks('[\n{"question": "a"},\n{"question": "b"}\n]'), "JSON array"),
    "a comma after a task": (tasks('{"question": "a"},\n{"question": "b"}\n'), "column 18"),
    "a comma in a task's end": (tasks('{"question": "a",}\n'), "column 18"),
    "a bracket that is not closed": (tasks('{"question": "a"}\r\n[1,2\r\n'), ":2: the line is not JSON (column 5)"),
    "a task in single quotes": (tasks("{'question': 'a'}\n"), "column 2"),
    "two tasks on a line": (tasks('{"question": "a"} {"question": "b"}\n'), "column 19"),
    "a task's key twice": (tasks('{"question": "a", "question": "b"}\n'), "stands twice"),
    "a number for a task": (tasks("3\n"), "an object"),
    "NULs between tasks": (tasks(b'{"question": "a"}\n\x00\x00\n'), ":2"),
    "half a character in a task": (tasks('{"question": "\\ud800"}\n'), ":1"),
    "a task's number of 5000 digits": (tasks('{"question": ' + "9" * 5000 + "}\n"), ":1"),
    "a task that is nested without end": (tasks("[" * 100_000), "nested"),
    "a directory for tasks": (instead("tasks.jsonl", Path.mkdir), "a directory"),
    "a pipe for tasks": (instead("tasks.jsonl", os.mkfifo), "no regular file"),
    "tasks that link to themselves": (instead("tasks.jsonl", lambda at: at.symlink_to(at.name)), "symbolic links"),
    "a directory for the config": (instead("train.toml", Path.mkdir), "a directory"),
    "a pipe for the config": (instead("train.toml", os.mkfifo), "no regular file"),
    "a config that links to itself": (instead("train.toml", lambda at: at.symlink_to(at.name)), "circle"),
    "a config that is not there": (gone("train.toml"), "no such file"),
    "an output directory that is a file": (added('[output]\noutput_dir = "tasks.jsonl"\n'), "is a file"),
    "a model directory without a config": (model_directory("{"), "config.json"),
    "a model of another architecture": (model_directory('{"architectures": ["GPT2LMHeadModel"]}'), "GPT2"),
    "a tokenizer that there is not": (config("max_seq_len = 128", 'max_seq_len = 128\ntokenizer = "./no"'), "no such"),
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
    "a pipe for a module": (instead("my_episode.py", os.mkfifo), "no regular file"),
    "a module in UTF-16": (again("utf-16", "my_episode.py"), "my_episode.py"),
    "a module that ends the program": (episode("class MyTask", "raise SystemExit(3)\nclass MyTask"), "SystemExit"),
    "an episode without a grade": (episode("async def grade", "async def grad"), "grade"),
    "a run that cannot be awaited": (episode("async def run", "def run"), "async def"),
    "a run without an argument": (episode("run(self, sample)", "run(self)"), "one argument"),
    "a task type that nobody defines": (episode("question: str", "question: 'Nowhere'"), "Nowhere"),
    "an option that is needed": (episode("turns: int = 2", "turns: int"), "turns"),
    "an episode by its file": (config("my_episode:", "my_episode.py:"), "Write 'my_episode:MyEpisode'"),
    "a run that yields": (episode("        return None", "        yield"), "'yield'"),
    "an init that forgets the task": (
        episode("class MyEpisode(", "class Base(Episode):\n    def __init__(self, task, options): self.x = 1\nclass MyEpisode(Base, "),
        "super().__init__(task, options)"),
    "a misspelt attribute": (
        episode("    async def run", "    grading_retires = 2\n    async def run"), "Did you mean 'grading_retries'?"),
    "a misspelt name of the engine's": (
        episode("class MyTask", "from engine.episodes import Episod\nclass MyTask"), "Did you mean 'Episode'?"),
    "a variable that is not set": (
        episode("class MyTask", "import os\nKEY = os.environ['JUDGE_KEY_OF_NOBODY']\nclass MyTask"),
        "no environment variable JUDGE_KEY_OF_NOBODY. Set it"),
    "a prompt that is not there": (
        episode("class MyTask", "PROMPT = open('prompt-of-nobody.txt').read()\nclass MyTask"), "Path(__file__).parent"),
    "a validator that refuses": (
        all_of(
            episode("question: str", "question: str\n    @field_validator('question')\n    def v(cls, x): raise ValueError('no b')"),
            lambda where: (where / "my_episode.py").write_text(
                "from pydantic import field_validator\n" + (where / "my_episode.py").read_text()),
            tasks('{"question": "b"}\n')),
        "the task's 'question' is not valid: no b."),
    "the class below all episodes": (config("my_episode:MyEpisode", "my_episode:Episode"), "Name the one that you wrote"),
    "half a type": (episode("MyTask, MyOptions", "MyTask"), "Too few arguments"),
    # TOML itself
    "a quote that is not closed": (config('"tasks.jsonl"', '"tasks.jsonl'), "TOML"),
    "a table twice": (added("[model]\n"), "TOML"),
    "no value": (config("max_steps = 3", "max_steps ="), "TOML"),
    "YAML": (lambda where: (where / "train.toml").write_text("recipe: rl\n"), "key = value"),
    "UTF-16": (again("utf-16"), "UTF-8"),
    "Latin 1": (all_of(config("max_steps = 3", "max_steps = 3  # é"), again("latin-1")), "UTF-8"),
    "a NUL": (config("max_steps = 3", "max_steps = 3\x00"), "TOML"),
    "old Mac line ends": (
        lambda where: (where / "train.toml").write_bytes(CONFIG.encode().replace(b"\n", b"\r")), "TOML"),
    "a key below a value": (config("max_steps = 3", "max_steps = 3\nmax_steps.x = 4"), "TOML"),
    "a table below a key": (config('recipe = "rl"', 'recipe = "rl"\ntraining.max_steps = 3'), "TOML"),
    "an inner table twice": (added("[runtime.config.options]\n[runtime.config.options]\n"), "TOML"),
    "text without quotes": (config('"local"', "local"), "quotes"),
    "curly quotes": (config('"local"', "\u201clocal\u201d"), "straight quotes"),
    "Python's truth": (config('scope = "local"', 'scope = "local"\nkeep_run = True'), "true and false"),
    "a null": (config("max_steps = 3", "max_steps = null"), "Leave the key out"),
    "a comment of another language": (config("max_steps = 3", "max_steps = 3 // three"), "begins with #"),
    "a colon": (config("max_steps = 3", "max_steps: 3"), "key = value"),
    "a zero in front": (config("max_steps = 3", "max_steps = 03"), "no 0"),
    "a merge conflict": (config("max_steps = 3", "<<<<<<< HEAD\nmax_steps = 3"), "merge conflict"),
    "a number of 5000 digits": (config("max_steps = 3", "max_steps = " + "9" * 5000), "TOML"),
    "nesting without end": (config("max_steps = 3", "x = " + "[" * 20_000), "nested"),
}  # fmt: skip


def write_project(where: Path) -> None:
    (where / "my_episode.py").write_text(EPISODE)
    (where / "tasks.jsonl").write_text(TASKS)
    (where / "train.toml").write_text(CONFIG)


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
    write_project(tmp_path)
    change(tmp_path)
    [finding] = await problems_of(tmp_path)
    sentence = str(finding)
    assert said in sentence
    assert str(tmp_path) in sentence  # the file
    assert finding.line is not None or finding.key is not None or finding.remedy
    assert (
        finding.remedy or "Did you mean" in sentence or " must be " in sentence or finding.line is not None
    ), sentence
    assert "Traceback" not in sentence
    assert len(sentence.splitlines()) == 1
    assert len(sentence) < 600
    assert "\x1b" not in sentence


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 120


@pytest.mark.parametrize(
    "change",
    [
        again("utf-8-sig"),
        lambda where: (where / "train.toml").write_bytes(CONFIG.encode().replace(b"\n", b"\r\n")),
        again("utf-8-sig", "tasks.jsonl"),
        tasks('\n\n{"question": "a"}\r\n\n{"question": "b\u2028c"}\n\n'),
        lambda where: (
            instead("train.toml", lambda at: at.symlink_to("other.toml"))(where)
            or (where / "other.toml").write_text(CONFIG)
        ),
    ],
    ids=["a BOM", "CRLF", "a BOM in tasks", "blank lines and line ends inside text", "a link"],
)
async def test_what_only_looks_broken_is_taken(tmp_path: Path, change: Change) -> None:
    write_project(tmp_path)
    change(tmp_path)
    assert await problems_of(tmp_path) == []
