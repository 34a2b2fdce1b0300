"""Where paths begin, what overrides what, and what comes out."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import LoadedConfig, examples_dir, load_config
from engine.config.overrides import parse_value
from engine.config.positions import json_key_lines, toml_key_lines
from engine.config.settings import Settings, scope_of

Write = Callable[..., Path]
Load = Callable[..., LoadedConfig]


def test_the_defaults_hold(write: Write, load: Load, tmp_path: Path) -> None:
    settings = load(write()).rl
    assert settings.training.loss == "cispo"
    assert settings.training.loss_aggregation == "sum"
    assert settings.runtime.factory == "engine.episodes:create_runtime"
    assert settings.max_concurrent_rollouts == 4
    assert settings.output.output_dir == tmp_path / "runs"


def test_paths_are_relative_to_the_config_and_output_to_the_working_directory(
    write: Write, load: Load, tmp_path: Path
) -> None:
    loaded = load(write(name="deep/er/train.toml"))
    assert loaded.rl.runtime.config.tasks == tmp_path / "deep/er/tasks.jsonl"
    assert loaded.settings.output.output_dir == tmp_path / "runs"
    assert loaded.settings.output.name == "er"
    assert loaded.runs_dir == tmp_path / "runs/er"


def test_a_path_in_an_override_is_relative_to_the_working_directory(
    write: Write, load: Load, tmp_path: Path
) -> None:
    path = write(name="deep/train.toml")
    loaded = load(path, "runtime.config.tasks=other.jsonl", "output.output_dir=out", "model.base_model=./m")
    assert loaded.rl.runtime.config.tasks == tmp_path / "other.jsonl"
    assert loaded.settings.output.output_dir == tmp_path / "out"
    assert loaded.settings.model.base_model == str(tmp_path / "m")


def test_a_link_counts_as_its_target(write: Write, load: Load, tmp_path: Path) -> None:
    target = write(name="shared/train.toml")
    link = tmp_path / "mine.toml"
    link.symlink_to(target)
    loaded = load(link)
    assert (loaded.path, loaded.source) == (link, target)
    assert loaded.rl.runtime.config.tasks == tmp_path / "shared/tasks.jsonl"


def test_a_model_directory_beside_a_local_config_is_a_path(write: Write, load: Load, tmp_path: Path) -> None:
    (tmp_path / "models/small").mkdir(parents=True)
    path = write(("loops-demo-1m", "models/small"))
    assert load(path).settings.model.base_model == str(tmp_path / "models/small")
    assert load(path, "compute.scope=dedicated").settings.model.base_model == "models/small"


def test_overrides_may_be_a_table(write: Write, tmp_path: Path) -> None:
    overrides = {
        "training.max_steps": 7,
        "runtime.config.tasks": Path("other.jsonl"),
        "model.tokenizer": None,
    }
    loaded = load_config(write(name="deep/train.toml"), overrides, working_dir=tmp_path)
    assert loaded.settings.training.max_steps == 7
    assert loaded.rl.runtime.config.tasks == tmp_path / "other.jsonl"
    assert "tokenizer" not in tomllib.loads(loaded.as_run())["model"]


def test_base_url_counts_as_the_environments(
    write: Write, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPS_BASE_URL", "http://other.test")
    path = write(('scope = "local"', 'scope = "dedicated"'))
    assert load(path).environ["LOOPS_BASE_URL"] == "http://other.test"
    assert load(path, "compute.base_url=http://mine.test").environ["LOOPS_BASE_URL"] == "http://mine.test"
    assert os.environ["LOOPS_BASE_URL"] == "http://other.test"


def test_overrides_have_types(write: Write, load: Load) -> None:
    loaded = load(
        write(), "training.max_steps=7", "training.learning_rate=1e-3", "output.trace=off", "output.name=a1"
    )
    assert loaded.settings.training.max_steps == 7
    assert loaded.settings.training.learning_rate == 1e-3
    assert loaded.settings.output.trace == "off"
    assert loaded.settings.output.name == "a1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e-4", 1e-4),
        ("true", True),
        ('"5"', "5"),
        ("word", "word"),
        ("Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-4B"),
        ("[1, 2]", [1, 2]),
        ("{ enable_thinking = false }", {"enable_thinking": False}),
        ("", ""),
        ("a\nb = 1", "a\nb = 1"),
    ],
)
def test_an_override_speaks_toml_and_bare_words(text: str, value: object) -> None:
    assert parse_value(text) == value


def test_json_says_the_same(write: Write, load: Load, tmp_path: Path) -> None:
    table = tomllib.loads(write().read_text())
    path = tmp_path / "train.json"
    path.write_text(json.dumps(table, indent=2))
    assert load(path).settings == load(tmp_path / "train.toml").settings


def test_a_file_in_the_working_directory_beats_the_bundled_one(
    write: Write, load: Load, tmp_path: Path
) -> None:
    bundled = examples_dir()
    assert bundled is not None
    named = "examples/in_process_direct/train.toml"
    assert load(named).source == bundled / "in_process_direct/train.toml"
    mine = write(name=named)
    assert load(named).source == mine


def test_the_config_as_run_can_be_loaded_again(write: Write, load: Load, tmp_path: Path) -> None:
    loaded = load(write(name="deep/train.toml"), "training.max_steps=7")
    copy = tmp_path / "elsewhere" / "config.toml"
    copy.parent.mkdir()
    copy.write_text(loaded.as_run())
    again = load(copy)
    assert again.settings == loaded.settings
    assert "override: training.max_steps = 7" in loaded.as_run()


def test_secrets_do_not_reach_the_config_as_run(
    write: Write, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "sk-very-secret")
    assert "sk-very-secret" not in load(write(), "runtime.config.options={key='sk-very-secret'}").as_run()


def test_env_files_fill_what_the_process_lacks(
    write: Write, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LT_A", "LT_B", "LT_C"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LT_A", "process")
    path = write(name="deep/train.toml")
    (path.parent / ".env").write_text("LT_A=file\nLT_B=config\n")
    (tmp_path / ".env").write_text("LT_B=cwd\nLT_C=cwd\n")
    assert load(path).env_files == ()
    loaded = load(path, dotenv=True)
    assert loaded.env_files == (path.parent / ".env", tmp_path / ".env")
    assert [os.environ[name] for name in ("LT_A", "LT_B", "LT_C")] == ["process", "config", "cwd"]
    (path.parent / ".env").write_text("LT_B=edited\n")
    assert load(path, dotenv=True).environ["LT_B"] == "edited"
    assert os.environ["LT_B"] == "edited"
    for name in ("LT_B", "LT_C"):
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("configured", "environment", "scope"),
    [
        ("local", "serverless", "local"),
        (None, "deployment", "dedicated"),
        (None, "serverless", "serverless"),
        (None, None, "auto"),
    ],
)
def test_the_config_beats_the_environment(configured: object, environment: str | None, scope: str) -> None:
    assert scope_of(configured, environment) == scope  # type: ignore[arg-type]


def test_lines_of_keys_in_toml() -> None:
    text = 'a = """\nx = 1\n"""\n# c = 1\n[t."q.k"]\nb.c = [\n  "]", # ]\n  {d = 1},\n]\n[[list]]\ne = {f = \'\'\'}\n\'\'\', g = 2}\n'
    tomllib.loads(text)
    lines = toml_key_lines(text)
    assert lines.line("a") == 1
    assert lines.line("x") is None
    assert lines.line("t.q.k.b.c") == 6
    assert lines.line("list.e") == 11
    assert lines.line("list.e.g") == 12
    assert lines.line("list.other.deep") == 10


def test_lines_of_keys_in_json() -> None:
    lines = json_key_lines('{\n "a": {"b": [\n  {"c": 1}],\n "d\\"": 2},\n "e": "a"\n}')
    assert (lines.line("a"), lines.line("a.b"), lines.line("e")) == (2, 2, 5)


def test_every_key_is_documented() -> None:
    from engine.config import known_keys

    undocumented = [key for key, description in known_keys(Settings).items() if not description]
    assert undocumented == []
