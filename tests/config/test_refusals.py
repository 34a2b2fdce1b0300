"""Every broken config gets one sentence with file, line, cause and remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config.loading import load_config
from engine.config.problems import ConfigError
from engine.config.tasks import load_tasks

Write = Callable[..., Path]
Problems = Callable[..., list[str]]

ONE_KEY = [
    ("max_steps = 3", "max_step = 3", ["unknown key 'max_step' in [training]", "mean 'max_steps'"]),
    ("max_steps = 3", 'max_steps = "3"', ["[training] max_steps must be a whole number", 'the text "3"']),
    ("max_steps = 3", "max_steps = 3.5", ["[training] max_steps must be a whole number, not 3.5"]),
    ("max_steps = 3", "max_steps = true", ["[training] max_steps must be a whole number, not true"]),
    ("max_steps = 3", "max_steps = 0", ["[training] max_steps must be at least 1, not 0"]),
    ("group_size = 4", "group_size = 1", ["[training] group_size must be at least 2"]),
    ("group_size = 4", "group_size = [4]", ["[training] group_size must be a whole number, not [4]"]),
    ("max_tokens = 32", "max_tokens = 256", ["no room for a prompt", "max_seq_len = 256"]),
    ("max_tokens = 32", "temperature = 0", ["[sampling] temperature must be more than 0"]),
    ("max_tokens = 32", "top_p = 1.1", ["[sampling] top_p must be at most 1"]),
    ("max_tokens = 32", 'stop = [""]', ["[sampling] stop", "empty string"]),
    ("max_tokens = 32", "learning_rate = 0.1", ["unknown key 'learning_rate' in [sampling]", "[training]"]),
    ('scope = "local"', 'scope = "locl"', ["[compute] scope cannot be", 'Did you mean "local"?']),
    ('scope = "local"', 'scope = "local"\nreplicas = 2', ["replicas sizes a dedicated", "Remove replicas"]),
    ('scope = "local"', 'scope = "serverless"\nspot = true', ["spot sizes a dedicated", "shares a pool"]),
    ('scope = "local"', "replicas = 2", ["replicas sizes a dedicated", "scope = 'dedicated'"]),
    ('scope = "local"', 'scope = "local"\nbase_url = "http://x.test"', ["starts its own server"]),
    ('scope = "local"', 'scope = "dedicated"\nbase_url = "x.test/y"', ["must begin with http://"]),
    (
        'scope = "local"',
        'scope = "local"\nreuse = true',
        ["[compute] reuse is not available in this version"],
    ),
    ('"rl"', '"sft"', ["unknown key 'runtime'", 'It belongs to configs with recipe = "rl"']),
    ('"rl"', '"ppo"', ["recipe cannot be"]),
    ('recipe = "rl"', "", ["does not say what it is for", 'Add recipe = "rl"']),
    (
        "group_size = 4",
        'mode = "asynch"',
        ['[training] mode cannot be the text "asynch"', 'Did you mean "async"?'],
    ),
    (
        "group_size = 4",
        'mode = "async"\nmax_policy_delta_in_trajectory = 2',
        ["max_policy_delta_in_trajectory is 2", "Set it to 1 or less"],
    ),
    ("group_size = 4", "max_steps_off_policy = 2", ["max_steps_off_policy is 2", "Set it to 0"]),
    ("group_size = 4", "max_policy_delta_in_trajectory = 1", ["max_policy_delta_in_trajectory is 1"]),
    ("group_size = 4", "group_size = 4\nmax_group_losses = 3", ["at least 2 attempts left", "2 or less"]),
    ("group_size = 4", 'loss = "cspo"', ["[training] loss cannot be", 'Did you mean "cispo"?']),
    ("group_size = 4", "loss_config = 3", ["[training] loss_config must be a table, not 3"]),
    ("group_size = 4", "loss_config = { skip_token_normalization = true }", ["set by [training] loss_agg"]),
    ("group_size = 4", "learning_rate = nan", ["[training] learning_rate"]),
    ("my_episode:MyEpisode", "my_episode.MyEpisode", ["[runtime.config] episode must be 'module:Class'"]),
    ("my_episode:MyEpisode", "my episode:MyEpisode", ["[runtime.config] episode must be 'module:Class'"]),
    ('tasks = "tasks.jsonl"', "tasks = 3", ["[runtime.config] tasks", "not"]),
    ('tasks = "tasks.jsonl"', "", ["[runtime.config] tasks is missing", "JSONL"]),
    ('base_model = "loops-demo-1m"', "", ["[model] base_model is missing"]),
    ("max_seq_len = 256", "max_seq_len = 256\nlora_rnk = 4", ["Did you mean 'lora_rank'?"]),
    ("[model]", "[modle]", ["unknown key 'modle'", "Did you mean 'model'?"]),
    ("[runtime.config]", '[runtime]\nfactory = "x:y"\n[runtime.config]', ["'x:y' is not available"]),
    ("[compute]", '[output]\nname = "a/b"\n[compute]', ["[output] name must be one directory name"]),
    ("[compute]", '[output]\ntrace = "sample"\n[compute]', ["[output] trace", 'Did you mean "samples"?']),
    ("[compute]", "[output]\nwandb_project = 'x'\n[compute]", ["not available in this version"]),
]


@pytest.mark.parametrize(("old", "new", "said"), ONE_KEY, ids=[new[:40] for _, new, _ in ONE_KEY])
def test_a_wrong_key_is_explained(
    write: Write, problems: Problems, old: str, new: str, said: list[str]
) -> None:
    path = write((old, new))
    sentences = problems(path)
    told = next((sentence for sentence in sentences if said[0] in sentence), None)
    assert told is not None, sentences
    for words in said:
        assert words in told
    assert told.startswith(str(path))


@pytest.mark.parametrize("table", ["console"])
def test_a_table_of_a_later_version_is_named(write: Write, problems: Problems, table: str) -> None:
    [sentence] = problems(write(more=f"[{table}]\nx = 1\n"))
    assert "not available in this version" in sentence


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[budget]\nmax_cost = 5.0\n", "no price is"),
        ('[eval]\ntasks = "held.jsonl"\nmax_tokens = 256\n', "leaves no room for a prompt"),
        ("[eval]\nevery_steps = 2\n", "[eval] tasks is missing"),
        ('[providers.blaxel]\nbase_url = "ftp://x"\n', "must begin with http"),
        ("[budget]\nmax_hour = 1\n", "Did you mean 'max_hours'?"),
    ],
)
def test_tables_beside_the_training_are_checked(
    write: Write, problems: Problems, more: str, said: str
) -> None:
    [sentence] = problems(write(more=more))
    assert said in sentence


def test_the_line_is_that_of_the_key(write: Write, problems: Problems) -> None:
    path = write(("max_steps = 3", 'max_steps = "3"'), ("group_size = 4", "grup_size = 4"))
    assert [sentence.partition(": ")[0] for sentence in problems(path)] == [f"{path}:12", f"{path}:13"]


def test_all_problems_are_told_at_once(write: Write, problems: Problems) -> None:
    path = write(
        ("group_size = 4", "group_size = 1"), ("max_steps = 3", "max_steps = 0"), ('"local"', '"here"')
    )
    assert len(problems(path)) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = \n", "line 1, column 5"),
        ("[a]\nb = 1\n[a]\n", "line 3"),
        ('recipe = "rl', "at its end"),
        ("a = 1\na = 2\n", "line 2"),
    ],
)
def test_bad_toml_is_told_with_its_place(tmp_path: Path, problems: Problems, text: str, said: str) -> None:
    path = tmp_path / "train.toml"
    path.write_text(text)
    [sentence] = problems(path)
    assert "this is not TOML" in sentence
    assert said in sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"recipe": }', "line 1, column 12"),
        ("[]", "is one object"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
    ],
)
def test_bad_json_is_told_with_its_place(tmp_path: Path, problems: Problems, text: str, said: str) -> None:
    path = tmp_path / "train.json"
    path.write_text(text)
    [sentence] = problems(path)
    assert said in sentence


def test_files_that_are_no_config(tmp_path: Path, problems: Problems) -> None:
    (tmp_path / "train.toml").write_text("")
    (tmp_path / "train.yaml").write_text("")
    (tmp_path / "latin.toml").write_bytes(b"a = 1\nb = '\xe9'\n")
    (tmp_path / "broken.toml").symlink_to(tmp_path / "gone.toml")
    assert "no such file. Did you mean train.toml?" in problems("tran.toml")[0]
    assert "There is no directory" in problems("nowhere/at/all.toml")[0]
    assert "this is a directory" in problems(tmp_path)[0]
    assert ".toml or a .json" in problems("train.yaml")[0]
    assert "latin.toml:2: the config is not UTF-8" in problems("latin.toml")[0]
    assert "which is missing" in problems("broken.toml")[0]
    assert "recipe" in problems("train.toml")[0] or len(problems("train.toml")) > 1


def test_a_missing_bundled_example_suggests_one(problems: Problems) -> None:
    assert (
        "Did you mean examples/in_process_direct/train.toml?"
        in problems("examples/in_proces_direct/train.toml")[0]
    )


def test_an_override_is_blamed_by_its_name(write: Write, problems: Problems) -> None:
    path = write()
    assert problems(path, "training.max_steps=many")[0].startswith("override training.max_steps:")
    assert "Did you mean 'group_size'?" in problems(path, "training.grp_size=2")[0]
    assert "has no '='" in problems(path, "training.max_steps")[0]
    assert "names no key" in problems(path, "a b=1")[0]
    assert "needs a table at 'recipe'" in problems(path, "recipe.x=1")[0]


def test_a_scope_in_the_environment_that_does_not_exist(
    write: Write, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASETEN_LOOPS_SCOPE", "moon")
    [sentence] = problems(write(('scope = "local"', "")))
    assert "BASETEN_LOOPS_SCOPE is 'moon'" in sentence


def test_an_address_in_the_environment_that_is_none(
    write: Write, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPS_BASE_URL", "localhost:8000")
    [sentence] = problems(write(('scope = "local"', 'scope = "dedicated"')))
    assert "LOOPS_BASE_URL must begin with http:// or https://" in sentence
    assert load_config(write()).scope == "local"  # whose server is its own


def test_a_device_or_a_pipe_is_no_config_and_no_tasks_file(
    write: Write, problems: Problems, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    [sentence] = problems(pipe)
    assert "no regular file" in sentence
    with pytest.raises(ConfigError, match="no regular file"):
        load_tasks(Path("/dev/zero"), dict)
