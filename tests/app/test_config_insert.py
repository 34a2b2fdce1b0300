"""Where a chosen setting goes."""

from __future__ import annotations

import tomllib

import pytest

from engine.config.catalog import setting
from loops_tui.screens.config_insert import (
    Insertion,
    insert_setting,
    insert_value,
    table_at,
    value_of,
    word_at,
)

TEXT = """\
recipe = "rl"

[training]  # how
max_steps = 5   # few

[model]
seed = 1

[runtime.config.sandbox]
"""


def put(text: str, insertion: Insertion) -> str:
    """The text after an insertion's changes, made one after the other as an editor does."""
    for change in insertion.changes:
        lines = text.split("\n")
        before = "\n".join([*lines[: change.start[0]], lines[change.start[0]][: change.start[1]]])
        after = "\n".join([lines[change.end[0]][change.end[1] :], *lines[change.end[0] + 1 :]])
        text = before + change.text + after
    return text


def insert(text: str, row: int, key: str) -> tuple[str, str]:
    """The new text and what is selected in it."""
    found = setting(key)
    assert found is not None
    insertion = insert_setting(text.split("\n"), row, found)
    new = put(text, insertion)
    (row, begin), (_, end) = insertion.select
    return new, new.split("\n")[row][begin:end]


@pytest.mark.parametrize(
    ("row", "key", "follows"),
    [
        (3, "training.group_size", "max_steps = 5   # few\ngroup_size = 16\n"),  # below the line in hand
        (
            4,
            "training.group_size",
            "max_steps = 5   # few\ngroup_size = 16\n[model]",
        ),  # in the empty line itself
        (0, "training.group_size", "max_steps = 5   # few\ngroup_size = 16\n\n[model]"),  # in its table
        (6, "runtime.config.sandbox.memory_mb", "[runtime.config.sandbox]\nmemory_mb = 2048\n"),
        (
            3,
            "sampling.top_p",
            "[runtime.config.sandbox]\n\n[sampling]\ntop_p = 1.0\n",
        ),  # a new table at the end
    ],
)
def test_a_setting_goes_into_its_table(row: int, key: str, follows: str) -> None:
    new, selected = insert(TEXT, row, key)
    assert follows in new
    found = setting(key)
    assert found is not None
    assert selected == found.example
    here = tomllib.loads(new)
    for part in key.split("."):
        here = here[part]
    assert [line for line in TEXT.split("\n") if line and line not in new] == []


def test_what_was_typed_of_it_is_replaced() -> None:
    text = TEXT.replace("max_steps = 5   # few\n", "max_steps = 5\ngroup\n")
    new, selected = insert(text, 4, "training.group_size")
    assert "max_steps = 5\ngroup_size = 16\n" in new
    assert selected == "16"
    elsewhere, _ = insert(text, 4, "sampling.top_p")
    assert "group" not in elsewhere
    assert tomllib.loads(elsewhere)["sampling"] == {"top_p": 1.0}


def test_a_text_without_anything() -> None:
    new, selected = insert("", 0, "training.max_steps")
    assert tomllib.loads(new) == {"training": {"max_steps": 20}}
    assert selected == "20"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a = 1  # one", "1"),
        ('a = "x # y"   # z', '"x # y"'),
        ("a=true", "true"),
        ("  a.b = { c = 1 }", "{ c = 1 }"),
        ("a = ", None),
        ("[a]", None),
        ("# a = 1", None),
    ],
)
def test_the_value_on_a_line(line: str, value: str | None) -> None:
    assert value_of(line) == value


def test_another_value_keeps_the_comment() -> None:
    lines = ['scope = "local"  # here']
    insertion = insert_value(lines, 0, '"dedicated"')
    assert insertion is not None
    assert put(lines[0], insertion) == 'scope = "dedicated"  # here'
    assert insertion.select == ((0, 8), (0, 19))
    assert insert_value(["[a]"], 0, "1") is None


def test_where_one_is() -> None:
    lines = TEXT.split("\n")
    assert [table_at(lines, row) for row in (0, 2, 3, 6, 8)] == [
        "", "training", "training", "model", "runtime.config.sandbox",
    ]  # fmt: skip
    assert word_at(["  lear"], 0) == "lear"
    assert word_at(["a = 1"], 0) == ""
    assert word_at([], 3) == ""
