"""``loops-tui settings``."""

from __future__ import annotations

import pytest

from engine.config.catalog import recipes, settings
from tests.cli.conftest import Call


def test_all_of_them_are_listed(call: Call) -> None:
    said = call("settings")
    assert said.status == 0
    for found in settings():
        assert f"  {found.name}  (" in said.out
    assert "[runtime.config.sandbox]" in said.out
    assert max(map(len, said.out.splitlines())) <= 110


def test_as_json(call: Call) -> None:
    said = call("settings", "--json")
    told = [(value["key"], *value["recipes"]) for value in said.value]
    assert len(told) == len(set(told))
    assert ("training.group_size", "rl") in told
    assert ("model.lora_rank", "rl", "sft") in told
    assert {key for key, *_ in told} == {found.key for recipe in recipes() for found in settings(recipe)}
    one = call("settings", "training.group_size", "--json").value
    assert (one["default"], one["required"], one["table"]) == ("16", False, "training")


@pytest.mark.parametrize("key", ["training.group_size", "group_size"])
def test_one_in_detail(call: Call, key: str) -> None:
    said = call("settings", key)
    assert said.status == 0
    for part in (
        "training.group_size",
        "whole number, at least 2",
        "16",
        "Attempts at one task",
        "--set training.group_size",
    ):
        assert part in said.out


def test_what_differs_between_recipes_is_told_for_each(call: Call) -> None:
    said = call("settings", "training.max_steps")
    assert 'training.max_steps  (recipe = "sft")' in said.out
    assert "Default:     required" in said.out
    assert "Default:     all epochs" in said.out
    assert [value["recipes"] for value in call("settings", "training.max_steps", "--json").value] == [
        ["rl"],
        ["sft"],
    ]


def test_a_table(call: Call) -> None:
    said = call("settings", "[prices]")
    assert "sandbox_gb_hour" in said.out
    assert "group_size" not in said.out
    assert [value["table"] for value in call("settings", "providers", "--json").value] == [
        "providers.blaxel"
    ] * 3


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("trainig.group_size", "did you mean training.group_size?"),
        ("seed", "seed is in eval.seed, model.seed and training.seed"),
        ("zzzzz", "`loops-tui settings` lists them all"),
    ],
)
def test_a_key_that_there_is_not(call: Call, key: str, said: str) -> None:
    done = call("settings", key)
    assert done.status == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert said in call("settings", key, "--json").value["error"]
