"""More of what users hand over by mistake: other formats under a config's name, JSON as people write it, hostile text,
files that cannot be made, and episodes that say impossible things of themselves."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.checking import output
from engine.config.local_models import shipped_models
from engine.config.problems import ConfigError
from engine.config.report import Finding, Severity
from engine.project import load
from tests.project.conftest import CONFIG
from tests.project.test_broken_inputs import (
    SANDBOX,
    Change,
    added,
    again,
    all_of,
    config,
    episode,
    model_directory,
    problems_of,
    tasks,
    write_project,
)

pytestmark = pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")

TABLE = tomllib.loads(CONFIG)
ESC = "\\u001b[2J\\u001b]0;title\\u0007"
LONG = "a" * 300_000


def instead(text: str | bytes) -> Change:
    """Something else in the config's file."""
    data = text if isinstance(text, bytes) else text.encode()
    return lambda where: (where / "train.toml").write_bytes(data)


def as_json(text: str) -> Change:
    """A JSON config instead."""

    def change(where: Path) -> None:
        (where / "train.toml").unlink()
        (where / "train.json").write_text(text)

    return change


def json_with(key: str, value: Any, table: str | None = None) -> Change:
    whole = copy.deepcopy(TABLE)
    (whole if table is None else whole[table])[key] = value
    return as_json(json.dumps(whole, indent=1))


def made(path: str, make: Callable[[Path], object]) -> Change:
    def change(where: Path) -> None:
        (where / path).parent.mkdir(exist_ok=True)
        make(where / path)

    return change


def env(data: bytes) -> Change:
    return lambda where: (where / ".env").write_bytes(data)


def validator(where: str, raised: str) -> Change:
    return episode(where, f"{where}\n    def model_post_init(self, context): raise {raised}")


def declared(what: str) -> Change:
    return episode("    async def run", f"    {what}\n    async def run")


def validator_again(raised: str) -> Change:
    """As :func:`validator`, in a module that was changed already."""

    def change(where: Path) -> None:
        file, field = where / "my_episode.py", "question: str"
        body = f"{field}\n    def model_post_init(self, context): raise {raised}"
        file.write_text(file.read_text().replace(field, body))

    return change


def kwargs(inside: str) -> Change:
    return config("max_seq_len = 128", f"max_seq_len = 128\nrenderer_chat_template_kwargs = {{ {inside} }}")


def loss(inside: str, name: str = "cispo") -> Change:
    return config("max_steps = 3", f'max_steps = 3\nloss = "{name}"\nloss_config = {{ {inside} }}')


JSON = json.dumps(TABLE, indent=1)
BROKEN: dict[str, tuple[Change, str]] = {
    # a config under a wrong name, or no config at all
    "a JSON config that is named TOML": (instead(JSON), "ends in .json"),
    "a TOML config that is named JSON": (as_json(CONFIG), "ends in .toml"),
    "an INI file": (instead("[training]\nmax_steps 5\n"), "key = value"),
    "a Git LFS pointer for the config": (instead("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "a web page for the config": (instead("<!DOCTYPE html><html></html>"), "web page"),
    "a compressed config": (instead(b"\x1f\x8b\x08\x00abc"), "gzip -d"),
    "an empty config": (instead(""), "holds no settings"),
    "a config of comments": (instead("# recipe = 'rl'\n"), "holds no settings"),
    "an empty object": (as_json("{}"), "holds no settings"),
    "an empty JSON config": (as_json(""), "recipe"),
    "a JSON text": (as_json('"rl"'), "one object"),
    # JSON as people write it
    "a comment in JSON": (as_json("// mine\n" + JSON), "no comments"),
    "a comma at the end in JSON": (as_json(JSON[:-2] + ",\n}"), "comma"),
    "no comma in JSON": (as_json(JSON.replace('"rl",', '"rl"')), "comma"),
    "single quotes in JSON": (as_json(str(TABLE)), "double quotes"),
    "Python's truth in JSON": (as_json('{"recipe": True}'), "true, false and null"),
    "a key twice in JSON": (as_json('{\n"recipe": "rl",\n"model": {"seed": 1,\n"seed": 2}}'), ".json:4: "),
    "a null for a count": (json_with("max_steps", None, "training"), "not null"),
    "a null for a table": (json_with("sampling", None), "must be a table, not null"),
    "a dotted key in JSON": (json_with("training.max_steps", 5), "into the table [training]"),
    "a number that is none in JSON": (json_with("learning_rate", float("nan"), "training"), "finite"),
    # TOML
    "a dotted key in quotes": (
        config('recipe = "rl"', 'recipe = "rl"\n"training.max_steps" = 5'), "Put max_steps into the table [training]"),
    "a table twice, once dotted": (
        config('recipe = "rl"', 'recipe = "rl"\nmodel.seed = 1'), "cannot declare [model] twice"),
    "a Windows path": (config('"tasks.jsonl"', '"C:\\tasks.jsonl"'.replace("\\t", "\\q")), "two backslashes"),
    "a comma at a table's end": (kwargs("enable_thinking = false,"), "No comma before the }"),
    "a table in braces over two lines": (kwargs("\n enable_thinking = false"), "stands on one line"),
    "a heading that is not closed": (config("[training]", "[training"), "Close the bracket"),
    "a decimal comma": (config("max_steps = 3", "max_steps = 3\nlearning_rate = 0,001"), "a point, not a comma"),
    "a semicolon": (config("max_steps = 3", "max_steps = 3;"), "without ;"),
    "a semicolon in a comment alone": (config("max_steps = 3", "max_steps = three # 3; or so"), "Text needs quotes"),
    "no comma in a list": (added("[output]\nname = [1 2]\n"), "put commas between"),
    "a text over two lines": (config('"tasks.jsonl"', '"tasks\n.jsonl"'), "Close the quote in the same line"),
    "two keys on a line": (config("max_steps = 3", "max_steps = 3 seed = 1"), "on a line of its own"),
    # words of other tools
    "the scope's name in the SDK": (config('"local"', '"deployment"'), 'Did you mean "dedicated"?'),
    "a rate by another word": (config("max_steps = 3", "max_steps = 3\nlr = 0.1"), "[training] learning_rate"),
    "a group by another word": (config("max_steps = 3", "max_steps = 3\nnum_generations = 8"), "[training] group_size"),
    "epochs": (config("max_steps = 3", "max_steps = 3\nnum_train_epochs = 8"), "[training] max_steps"),
    "a table that only inner tables name": (added("[producers.main]\nx = 1\n"), ":15: unknown key 'producers'"),
    # models
    "a model's config that is nested without end": (model_directory("[" * 100_000), "cannot be read"),
    "a model's config with an endless number": (model_directory('{"a": ' + "9" * 5000 + "}"), "cannot be read"),
    "a model with an endless name": (config('"loops-demo-1m"', f'"/{"a" * 300}"'), "does not exist"),
    "a tokenizer with an endless name": (
        config("max_seq_len = 128", f'max_seq_len = 128\ntokenizer = "./{"a" * 300}"'), "no such directory"),
    "a tokenizer that is a file": (
        all_of(made("tok", Path.touch), config("max_seq_len = 128", 'max_seq_len = 128\ntokenizer = "./tok"')),
        "tokenizer.json"),
    "a module with an endless name": (config("my_episode:", f"{'a' * 300}:"), "there is no module"),
    "a price beyond all measure": (added("[prices]\ntrainer_hour = 1e300\n"), "at most 1000000000"),
    # text of any length and kind
    "an endless value": (config('"local"', f'"{LONG}"'), "'dedicated'"),
    "an endless key": (config("max_steps = 3", f"max_steps = 3\n{LONG} = 1"), "unknown key"),
    "an endless model": (config('"loops-demo-1m"', f'"{LONG}"'), "on this machine"),
    "an endless episode": (config("my_episode:MyEpisode", LONG), "module:Class"),
    "an endless ttl": (added(f'{SANDBOX}ttl = "{LONG}"\n'), "duration"),
    "an endless path": (config('"tasks.jsonl"', f'"{"a" * 300}"'), "too long"),
    "an endless list": (config("max_steps = 3", f"max_steps = [{'1,' * 50_000}]"), "whole number"),
    "a line end in a name": (added('[output]\nname = "abc\\n"\n'), "one directory name"),
    "a line end in the episode": (config("my_episode:MyEpisode", "my_episode:MyEpisode\\n"), "module:Class"),
    "a hostile value": (config('"local"', f'"{ESC}"'), "\\x1b[2J"),
    "a hostile model": (config('"loops-demo-1m"', f'"{ESC}"'), "\\x1b[2J"),
    "a hostile path": (config('"tasks.jsonl"', f'"{ESC}.jsonl"'), "\\x1b[2J"),
    "a hostile option": (added(f'[runtime.config.options]\n"{ESC}" = 1\n'), "\\x1b[2J"),
    "a hostile option's value": (added(f'[runtime.config.options]\nturns = "{ESC}"\n'), "\\x1b[2J"),
    "a hostile key of the chat template": (
        config("max_seq_len = 128", f'max_seq_len = 128\nrenderer_chat_template_kwargs = {{ "{ESC}" = nan }}'),
        "\\x1b[2J"),
    "a hostile table": (added(f'[training."{ESC}"]\nx = 1\n'), "\\x1b[2J"),
    "a hostile task id": (tasks('{"id": "\\u001b[2J", "question": "a"}\n' * 2), "\\x1b[2J"),
    "a hostile task key": (tasks('{"\\u001b[2J": 1, "\\u001b[2J": 2}\n'), "\\x1b[2J"),
    "a hostile error of a module": (episode("class MyTask", "raise ValueError('\\x1b[2J')\nclass MyTask"), "\\x1b[2J"),
    "a hostile error of a task type": (
        all_of(tasks('{"question": "a"}\n'), validator("question: str", "ValueError('\\x1b[2J')")), "\\x1b[2J"),
    "a hostile currency": (added('[prices]\ncurrency = "\\u001b[2J"\n'), "currency's name"),
    "text that turns around": (config('"local"', '"\u202elacol"'), "\\u202e"),
    # blanks and addresses where names and files belong
    "a blank renderer": (config("max_seq_len = 128", 'max_seq_len = 128\nrenderer = " "'), "is empty"),
    "a blank checkpoint": (config("max_seq_len = 128", 'max_seq_len = 128\nfrom_checkpoint = " "'), "is empty"),
    "an address for tasks": (config('"tasks.jsonl"', '"https://x.test/tasks.jsonl"'), "Download it"),
    "a data set of the hub for tasks": (config('"tasks.jsonl"', '"hf://datasets/a/b"'), "Download it"),
    "a variable without a name": (added(f'{SANDBOX}env = {{ "" = "x" }}\n'), "name of a variable"),
    "a variable with a sign in it": (added(f'{SANDBOX}env = {{ "A=B" = "x" }}\n'), "'A=B'"),
    "an address without a host": (config('"local"', '"dedicated"\nbase_url = "http://"'), "names no host"),
    "an address with a blank": (config('"local"', '"dedicated"\nbase_url = "http://a b"'), "names no host"),
    "an address with an impossible port": (config('"local"', '"dedicated"\nbase_url = "http://a:99999"'), "out of range"),
    "an address with a password": (config('"local"', '"dedicated"\nbase_url = "http://me:pw@a"'), "environment"),
    "another provider": (added("[providers.modal]\nmax_live = 3\n"), "There is blaxel"),
    "a bound on sandboxes without any": (added("[budget]\nmax_sandbox_hours = 3.0\n"), "has no sandboxes"),
    "an address with a question": (added('[providers.blaxel]\nbase_url = "http://a/v0?x=1"\n'), "must end before"),
    # bounds that nothing would be counted against
    "a cost without a price that applies": (
        config('"local"', '"dedicated"', '[budget]\nmax_cost = 5.0\n[prices]\ntrained_million = 1.0\n'),
        "trainer_hour"),
    "a cost where Loops chooses the scope": (
        config('scope = "local"', "", '[budget]\nmax_cost = 5.0\n[prices]\ntrainer_hour = 1.0\n'), "not known"),
    # tasks
    "tasks in CSV": (tasks("question,answer\n"), "one JSON object a line"),
    "tasks behind Git LFS": (tasks("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "a web page for tasks": (tasks("<html><body>Not found</body></html>\n"), "web page"),
    "tasks that are compressed with bzip2": (tasks(b"BZh91AY&SY"), "bzip2"),
    "tasks that are compressed with xz": (tasks(b"\xfd7zXZ\x00\x00"), "xz"),
    "tasks in UTF-16 without a mark": (tasks('{"question": "a"}\n'.encode("utf-16-le")), "UTF-16"),
    "a comment between tasks": (tasks('# mine\n{"question": "a"}\n'), "no comments"),
    "a task over several lines": (tasks('{\n "question": "a"\n}\n'), "one line"),
    "all tasks on one line": (tasks('[{"question": "a"}, {"question": "b"}]\n'), "JSON array"),
    "tasks with old Mac line ends": (tasks(b'{"question": "a"}\r{"question": "b"}\r'), "column 19"),
    "a task that is null": (tasks("null\n"), "not null"),
    "a task's number that is none": (tasks('{"question": NaN}\n'), "not nan"),
    "a misspelt field": (tasks('{"qestion": "a"}\n'), "'qestion'"),
    # where the run would write
    "a run's directory that is a file": (
        all_of(made("runs/mine", Path.touch), added('[output]\nname = "mine"\n')), "is a file"),
    "an output directory that leads nowhere": (
        all_of(made("out", lambda at: at.symlink_to("/nowhere/at/all")), added('[output]\noutput_dir = "out"\n')),
        "leads nowhere"),
    "an output directory with a name too long": (added(f'[output]\noutput_dir = "{"a" * 300}"\n'), "too long"),
    "an output directory of the system's": (added('[output]\noutput_dir = "/proc/x"\n'), "/proc"),
    # what an episode says of itself
    "a group's grade that is no class method": (declared("async def grade_group(self, a): return []"), "class method"),
    "a group's grade that cannot be awaited": (
        declared("@classmethod\n    def grade_group(cls, a): return []"), "async def"),
    "grading again for ever": (declared("grading_retries = -1"), "whole number"),
    "grading again as text": (declared("grading_retries = '2'"), "whole number"),
    "another way to the model": (declared("model_access = 'openai_http'"), "not available"),
    "options that end the program": (validator("turns: int = 2", "SystemExit(3)"), "SystemExit"),
    "a task type that ends the program": (
        all_of(tasks('{"question": "a"}\n'), validator("question: str", "SystemExit(3)")), "SystemExit"),
    "a module with an error of its own kind": (
        episode("class MyTask", "class Odd(BaseException): ...\nraise Odd('no')\nclass MyTask"), "Odd: no"),
    "a module that interrupts": (episode("class MyTask", "raise KeyboardInterrupt\nclass MyTask"), "KeyboardInterrupt"),
    "a module that calls itself for ever": (episode("class MyTask", "def f(): f()\nf()\nclass MyTask"), "recursion"),
    "a part of the cookbook that is not here": (
        episode("class MyTask", "from loops_cookbook.harbor import LoopsAgent\nclass MyTask"), "not available"),
    "a module that hides another": (made("pydantic.py", Path.touch), "pydantic.py"),
    # what a module, a class and its types may do besides
    "an error that cannot say what it is": (
        episode("class MyTask", "class E(Exception):\n    def __str__(self): raise ValueError\nraise E\nclass MyTask"),
        "cannot be imported: E"),
    "a task type with an error that cannot say what it is": (
        all_of(episode("class MyTask", "class E(Exception):\n    def __str__(self): raise ValueError\nclass MyTask"),
               tasks('{"question": "a"}\n'), validator_again("E()")), "refused the line: E"),
    "a module that answers for its names": (
        episode("class MyEpisode(", "def __getattr__(name): raise RuntimeError('no')\nclass Another("), "RuntimeError: no"),
    "a module beside it that is missing": (
        episode("class MyTask", "from .tools import shell\nclass MyTask"), "Put tools.py beside the config"),
    "a task type that interrupts": (
        all_of(tasks('{"question": "a"}\n'), validator("question: str", "KeyboardInterrupt")), "KeyboardInterrupt"),
    "options that interrupt": (validator("turns: int = 2", "KeyboardInterrupt"), "were refused: KeyboardInterrupt"),
    "a setup with an argument too many": (declared("async def setup(self, a, b): ..."), "Define async def setup"),
    "a group's grade without its attempts": (
        declared("@classmethod\n    async def grade_group(cls): return []"), "must take one argument"),
    "options of no type": (episode("MyOptions]", "5]"), "the options type of MyEpisode cannot be validated"),
    "tasks behind a link that leads nowhere": (
        all_of(made("tasks.jsonl", Path.unlink), made("tasks.jsonl", lambda at: at.symlink_to("gone.jsonl"))),
        "a link to gone.jsonl, which leads nowhere"),
    "tasks in UTF-32": (again("utf-32", "tasks.jsonl"), "UTF-32"),
    "half a character in a task's id": (tasks('{"id": "a\\ud800", "question": "a"}\n'), "half of a surrogate pair"),
    # keys and values
    "a list of tables": (config("[training]", "[[training]]"), "must be a table, not a list. In TOML: one pair"),
    "a truth as text for the chat template": (kwargs('enable_thinking = "False"'), "Write false, without quotes"),
    "messages for the chat template": (kwargs('messages = "x"'), "by the engine itself"),
    "clipping the wrong way round": (loss("clip_low_threshold = 1.3, clip_high_threshold = 0.7"), "is above"),
    "clipping above what it ends at by default": (loss("clip_low_threshold = 1.5"), "Loops' default"),
    "clipping at a distance": (loss("clip_high_threshold = 0.2"), "is above clip_high_threshold 0.2"),
    "clipping below nothing": (loss("clip_low_threshold = -0.2"), "at least 0, not -0.2"),
    "a mask above one": (loss("dppo_mask_high = 2", "dppo"), "from 0 to 1, not 2"),
    "a blank in a variable's name": (added(f'{SANDBOX}env = {{ "A B" = "x" }}\n'), "'A B'"),
    "variables without end": (added(f'{SANDBOX}env = {{ A = "{LONG}" }}\n'), "give large values as files"),
    "variables a byte too long": (
        added(f'{SANDBOX}env = {{ A = "{"x" * 96 * 1024}" }}\n'), "holds 97 KiB, and 96 KiB are the most"),
    "a line end in a variable's name": (added(f'{SANDBOX}env = {{ "A\\nB" = "x" }}\n'), "A\\nB"),
    # .env files
    "a NUL in a .env file": (env(b"A=1\nB=x\x00y\n"), ".env:2: "),
    "a .env file in Latin 1": (env(b"A=\xe9\n"), "Save it as UTF-8"),
    "a .env file in UTF-16": (env("A=1\n".encode("utf-16")), "Save it as UTF-8"),
}  # fmt: skip


async def refused(where: Path) -> list[Finding]:
    if not (where / "train.json").exists() and not (where / ".env").exists():
        return await problems_of(where)
    try:
        name = "train.json" if (where / "train.json").exists() else "train.toml"
        project = load(where / name, working_dir=where, dotenv=True)
    except ConfigError as error:
        return [Finding.of(Severity.ERROR, problem) for problem in error.problems]
    project.close()
    return []


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN.keys())
async def test_it_is_refused_with_one_message(tmp_path: Path, change: Change, said: str) -> None:
    write_project(tmp_path)
    change(tmp_path)
    [finding] = await refused(tmp_path)
    sentence = str(finding)
    assert said in sentence
    assert str(tmp_path) in sentence
    assert sentence.isprintable()  # one line, and nothing that a terminal would obey
    assert len(sentence) < 1600
    assert finding.remedy or finding.line is not None


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 95


def test_a_config_whose_name_is_too_long_is_no_defect(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="File name too long") as caught:
        load("a" * 5000 + ".toml", working_dir=tmp_path)
    assert "Traceback" not in str(caught.value)


def test_a_pipe_that_a_shell_names_is_no_config(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    try:
        with pytest.raises(ConfigError, match="no regular file"):
            load(f"/dev/fd/{reads}", working_dir=tmp_path)
    finally:
        os.close(reads)
        os.close(writes)


def test_lines_of_a_env_file_that_set_nothing_are_told(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / ".env").write_text("A_WORD=1\n\n\nnot a setting\n'A=B'=1\nANOTHER='open\n")
    project = load(tmp_path / "train.toml", working_dir=tmp_path, dotenv=True)
    report = asyncio.run(project.check())
    project.close()
    told = [finding for finding in report.findings if finding.file == str(tmp_path / ".env")]
    assert [(finding.severity, finding.line) for finding in told] == [("warning", line) for line in (4, 5, 6)]
    assert report.ok


@pytest.mark.parametrize(
    ("prices", "missing"),
    [
        ("trainer_hour = 1.0\n", "no sampler_hour"),
        ("sandbox_gb_hour = 1.0\ntrainer_hour = 1.0\nsampler_hour = 0\n", None),
    ],
)
async def test_a_cost_that_is_counted_in_part_is_a_warning(
    tmp_path: Path, prices: str, missing: str | None
) -> None:
    write_project(tmp_path)
    config('"local"', '"dedicated"', f"[budget]\nmax_cost = 5.0\n[prices]\n{prices}")(tmp_path)
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    report = await project.check(loops=False)
    project.close()
    told = [finding for finding in report.findings if finding.key == "budget.max_cost"]
    assert [(finding.severity, finding.line) for finding in told] == ([("warning", 16)] if missing else [])
    assert all(str(missing) in finding.text for finding in told)


@pytest.mark.parametrize("there", [".loops", ".loops/loops.db"])
def test_a_store_that_cannot_be_made_is_an_error(tmp_path: Path, there: str) -> None:
    write_project(tmp_path)
    if there == ".loops":
        (tmp_path / there).touch()
    else:
        (tmp_path / there).mkdir(parents=True)
    [finding] = asyncio.run(problems_of(tmp_path))
    assert str(tmp_path / there) in finding.text
    assert finding.remedy


@pytest.mark.parametrize(("free", "severity"), [(40, "error"), (400, "warning"), (4000, None)])
@pytest.mark.parametrize("full", ["out", ""], ids=["the output's disk", "the store's disk"])
async def test_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, severity: str | None, full: str
) -> None:
    """Two disks, one of them nearly full."""
    write_project(tmp_path)
    (tmp_path / "out").mkdir()
    config("[compute]", '[output]\noutput_dir = "out"\n[compute]')(tmp_path)

    def free_of(path: Path) -> Any:
        on_output = path.is_relative_to(tmp_path / "out")
        return SimpleNamespace(free=(free if on_output == bool(full) else 100_000) << 20)

    monkeypatch.setattr(output.shutil, "disk_usage", free_of)
    monkeypatch.setattr(output, "_disk", lambda path: path.is_relative_to(tmp_path / "out"))
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    report = await project.check()
    project.close()
    found = [(str(finding.severity), finding.line) for finding in report.findings]
    assert found == ([] if severity is None else [(severity, 14)])
