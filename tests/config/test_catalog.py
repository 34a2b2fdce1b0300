"""The catalog says of every setting what loading does with it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import known_keys
from engine.config.any_recipe import RECIPES
from engine.config.catalog import Setting, nearest, recipes, setting, settings, table, tables
from engine.config.comparing import Change, changes, changes_since_run
from engine.config.loading import LoadedConfig


@pytest.mark.parametrize("recipe", recipes())
def test_every_key_is_there_once(recipe: str) -> None:
    keys = [found.key for found in settings(recipe)]
    assert len(keys) == len(set(keys))
    named = {found.name for found in tables(recipe)}
    # What is known and no setting is a table, or holds tables only.
    left = set(known_keys(RECIPES[recipe])) - set(keys)
    assert all(any(name == key or name.startswith(f"{key}.") for name in named) for key in left), left


@pytest.mark.parametrize(
    "found",
    [found for recipe in recipes() for found in settings(recipe)],
    ids=lambda found: found.key,
)
def test_a_setting_is_told_in_full(found: Setting) -> None:
    assert found.meaning
    assert found.type
    assert found.meaning.endswith((".", ")"))
    assert "Required." not in found.meaning
    assert "Default:" not in found.meaning
    assert found.required or found.default_words
    # What is offered to insert is TOML.
    tomllib.loads(f"{found.name} = {found.example}")
    if found.default is not None:
        tomllib.loads(f"{found.name} = {found.default}")


def test_words_for_types_and_defaults() -> None:
    def told(key: str) -> tuple[str, str]:
        found = setting(key)
        assert found is not None
        return found.type, found.default_words

    assert told("training.group_size") == ("whole number, at least 2, at most 4096", "16")
    assert told("training.loss") == (
        'one of "importance_sampling", "ppo", "cispo", "dro", "dppo"',
        '"cispo"',
    )
    assert told("model.max_seq_len")[1] == "required"
    assert told("training.max_concurrent_rollouts")[1] == "group_size x groups_per_step"
    assert told("runtime.config.sandbox.env") == ("table of texts", "{}")
    assert told("training.shuffle_tasks") == ("true or false", "true")


def test_a_recipe_has_its_own() -> None:
    assert setting("training.epochs") is None
    sft = setting("training.epochs", "sft")
    assert sft is not None
    assert sft.default == "1"
    assert setting("training.group_size", "sft") is None
    for recipe in recipes():
        found = setting("recipe", recipe)
        assert found is not None
        assert found.values == ('"rl"', '"sft"')
        assert found.example == f'"{recipe}"'


def test_a_key_inside_a_free_table_is_that_table_s() -> None:
    found = setting("runtime.config.options.max_turns")
    assert found is not None
    assert found.key == "runtime.config.options"
    assert setting("training.group_size.more") is None
    assert table("runtime.config") is not None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("training.grup_size", "training.group_size"),
        ("group_size", "training.group_size"),
        ("[training]", "training"),
        ("sandbox", "runtime.config.sandbox"),
        ("lorarank", "model.lora_rank"),
        ("zzzzzz", None),
    ],
)
def test_what_was_probably_meant(typed: str, meant: str | None) -> None:
    assert nearest(typed) == meant


def test_changes_are_by_key_and_value() -> None:
    before = {"a": {"x": 1, "y": [1, 2], "gone": True}, "b": {}}
    after = {"b": {}, "a": {"y": [1, 2], "x": 1.0, "new": {"deep": "t"}}}
    assert changes(before, after) == [Change("a.new.deep", None, '"t"'), Change("a.gone", "true", None)]
    assert changes({"x": 1}, {"x": True})[0].kind == "changed"
    assert changes({"x": None}, {}) == []


def test_a_config_does_not_differ_from_its_own_run(
    write: Callable[..., Path], load: Callable[..., LoadedConfig]
) -> None:
    loaded = load(write())
    assert changes_since_run(loaded.as_run(), loaded.table) == []
    other = load(write(("max_steps = 3", "max_steps = 9")))
    assert changes_since_run(loaded.as_run(), other.table) == [Change("training.max_steps", "3", "9")]
    overridden = load(write(), "training.group_size=8")
    assert changes_since_run(overridden.as_run(), loaded.table) == [Change("training.group_size", "8", "4")]
