"""Overrides of every kind, from a command line and from a notebook."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from engine.config.problems import ConfigError
from engine.project import load
from tests.project.test_broken_inputs import write_project

OVERRIDES: dict[str, tuple[Any, str]] = {
    "a word": (["training.max_steps=many"], "whole number"),
    "nothing": (["training.max_steps="], "whole number"),
    "a negative number": (["training.max_steps=-3"], "at least 1"),
    "a date": (["training.max_steps=2024-01-01"], "2024-01-01"),
    "a date for a name": (["output.name=2024-01-01"], "--set 'output.name="),
    "a list of two kinds": (['sampling.stop=["a", 1]'], "text in quotes"),
    "quotes around a number": (['training.max_steps="3"'], 'the text "3"'),
    "thousands of brackets": (["training.max_steps=" + "[" * 50_000], "whole number"),
    "thousands of digits": (["training.max_steps=" + "9" * 5000], "whole number"),
    "a table that there is not": (["x.y=1"], "override x.y: "),
    "a table that only the override makes": (
        ["eval.at_start=false"],
        "override eval.at_start: [eval] tasks is missing",
    ),
    "a table in a table that there is not": (["training.a.b=1"], "override training.a.b: "),
    "a key below a value": (["training.max_steps.x=1"], "Override that key"),
    "a key at the top": (["max_steps=3"], "[training]"),
    "an option instead of an override": (["--training.max_steps=3"], "override --training.max_steps: "),
    "a table's name in brackets": (["[training]max_steps=3"], "names no key"),
    "a table as JSON writes it": (['runtime.config.options={"turns": 3}'], "{ key = value }"),
    "a hostile key": (["training.\x1b[2J=1"], "\\x1b[2J"),
    "a hostile value": (["training.max_steps=\x1b[2J"], "\\x1b[2J"),
    "two lines": (["training.max_steps=3\nx = 1"], "\\n"),
    "half a character": (["output.name=\udcff"], "surrogate"),
    "a number for all of them": (5, "a table or texts"),
    "numbers": ([5], "no text"),
    "a number for a key": ({5: 1}, "names no key"),
    "an object": ({"runtime.config.options.turns": object()}, "type object"),
    "a decimal": ({"training.learning_rate": Decimal("0.1")}, "type Decimal"),
    "bytes": ({"model.base_model": b"x"}, "type bytes"),
    "a set": ({"sampling.stop": {"a"}}, "type set"),
    "a line end in a key": ({"training.max_steps\n": 3}, "names no key"),
}


@pytest.mark.parametrize(("overrides", "said"), OVERRIDES.values(), ids=OVERRIDES.keys())
def test_an_override_is_refused_with_one_message(tmp_path: Path, overrides: Any, said: str) -> None:
    write_project(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "train.toml", overrides, working_dir=tmp_path)
    [problem] = caught.value.problems
    assert said in str(problem)
    assert str(problem).isprintable()
    assert len(str(problem)) < 1600


def test_an_override_that_holds_itself_is_refused(tmp_path: Path) -> None:
    write_project(tmp_path)
    table: dict[str, Any] = {}
    table["turns"] = table
    with pytest.raises(ConfigError, match="holds itself"):
        load(tmp_path / "train.toml", {"runtime.config.options": table}, working_dir=tmp_path)


@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        ("training.max_steps=4", "max_steps", 4),
        ({"training.max_steps": pytest.importorskip("numpy").int64(4)}, "max_steps", 4),
        ({"training.learning_rate": pytest.importorskip("numpy").float64(0.5)}, "learning_rate", 0.5),
        (["training.max_steps = 4  # four"], "max_steps", 4),
    ],
    ids=["one text", "a whole number of numpy's", "a number of numpy's", "a comment"],
)
def test_an_override_as_notebooks_have_it_is_taken(
    tmp_path: Path, overrides: Any, key: str, value: float
) -> None:
    write_project(tmp_path)
    project = load(tmp_path / "train.toml", overrides, working_dir=tmp_path)
    assert getattr(project.config.training, key) == value
    assert type(getattr(project.config.training, key)) is type(value)
    assert f"{key} = {value}" in project.config_toml
    project.close()
