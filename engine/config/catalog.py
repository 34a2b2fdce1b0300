"""Every setting of a config as a person reads it: type, unit, default and meaning, in words.

All of it is taken from the sections' own fields and descriptions, so the application, ``loops-tui settings`` and the
documents cannot tell anything else than what loading does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from engine.config.any_recipe import RECIPES
from engine.config.explain import section_type
from engine.config.losses import LOSS_SETTINGS
from engine.config.problems import did_you_mean
from engine.config.sections import Section

TOP = ""  # the table of the keys that stand before any header
_UNSET = re.compile(
    r"\s*(?:Default: (?P<unset>[^.]*(?:\.\d[^.]*)*)\.|Required\.|Empty by default(?:: [^.]*)?\.)"
)
_EXAMPLES = {  # what to begin with where a setting has no default
    "runtime.config.tasks": '"tasks.jsonl"',
    "runtime.config.episode": '"my_episode:MyEpisode"',
    "model.base_model": '"loops-demo-1m"',
    "model.max_seq_len": "1024",
    "training.max_steps": "20",
    "compute.scope": '"local"',
    "eval.tasks": '"heldout.jsonl"',
    "data.train": '"train.jsonl"',
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. ``default`` is written as in TOML; None where there is none, and then ``unset`` says what holds."""

    key: str  # dotted, as in "training.group_size"
    type: str  # in words: "whole number, at least 2"
    meaning: str  # what it is, in which unit, and what it does
    default: str | None
    unset: str | None
    required: bool
    values: tuple[str, ...] = ()  # all there are, where they can be listed
    example: str = ""  # a value to begin with, as in TOML

    @property
    def table(self) -> str:
        """The dotted name of its table; "" for the top level."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The key within its table."""
        return self.key.rpartition(".")[2]

    @property
    def default_words(self) -> str:
        """The default, or what holds without the key."""
        if self.required:
            return "required"
        if self.default is not None:
            return self.default
        return self.unset or "not set"

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "values": list(self.values), "table": self.table}


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its settings, in the order of the sections."""

    name: str  # dotted; "" for the top level
    meaning: str
    required: bool
    settings: tuple[Setting, ...]


@cache
def tables(recipe: str = "rl") -> tuple[Table, ...]:
    """Every table of a recipe's configs that has settings of its own, from the top level down."""
    return tuple(_tables(RECIPES[recipe], TOP, "Keys before any table.", required=True))


@cache
def _by_key(recipe: str) -> dict[str, Setting]:
    return {setting.key: setting for table in tables(recipe) for setting in table.settings}


@cache
def _by_table(recipe: str) -> dict[str, Table]:
    return {table.name: table for table in tables(recipe)}


def settings(recipe: str = "rl") -> Iterable[Setting]:
    """Every setting of a recipe, table by table."""
    return _by_key(recipe).values()


def recipes() -> tuple[str, ...]:
    """The recipes that there are."""
    return tuple(RECIPES)


def setting(key: str, recipe: str = "rl") -> Setting | None:
    """The setting of a dotted key; for a key inside a free table (``runtime.config.options.x``) that table's."""
    parts = key.split(".")
    while parts:
        found = _by_key(recipe).get(".".join(parts))
        if found is not None:
            return found if len(parts) == len(key.split(".")) or found.type.startswith("table") else None
        parts.pop()
    return None


def table(name: str, recipe: str = "rl") -> Table | None:
    """The table of a dotted name."""
    return _by_table(recipe).get(name)


def nearest(key: str) -> str | None:
    """The dotted key or table, of any recipe, that was probably meant; a bare name finds its table."""
    wanted = key.strip("[] ")
    known = list(
        dict.fromkeys(name for recipe in RECIPES for name in (*_by_key(recipe), *_by_table(recipe)) if name)
    )
    by_name = {name.rpartition(".")[2]: name for name in reversed(known)}
    if wanted in by_name:
        return by_name[wanted]
    near = did_you_mean(wanted, known)
    if near is None and (last := did_you_mean(wanted.rpartition(".")[2], by_name)):
        near = by_name[last]
    return near


def _tables(model: type[Section], name: str, meaning: str, *, required: bool) -> Iterator[Table]:
    inner: list[tuple[str, FieldInfo, type[Section]]] = []
    own: list[Setting] = []
    for key, field in model.model_fields.items():
        dotted = f"{name}.{key}" if name else key
        section = section_type(field.annotation)
        if section is not None and issubclass(section, Section):
            inner.append((dotted, field, section))
        else:
            own.append(_setting(dotted, field))
    if own:
        yield Table(name, meaning, required, tuple(own))
    for dotted, field, section in inner:
        yield from _tables(
            section, dotted, field.description or "", required=required and field.is_required()
        )


def _setting(key: str, field: FieldInfo) -> Setting:
    described = " ".join((field.description or "").split())
    found = _UNSET.search(described)
    unset = found["unset"].strip() if found and found["unset"] else None
    default = None if field.is_required() else _default(field)
    return Setting(
        key=key,
        type=_type_words(key, field),
        meaning=_UNSET.sub("", described).strip(),
        default=default,
        unset=unset if default is None else None,
        required=field.is_required(),
        values=_values(key, field.annotation),
        example=_EXAMPLES.get(key) or default or _example(field.annotation),
    )


def _default(field: FieldInfo) -> str | None:
    value = field.get_default(call_default_factory=True)
    return None if value is None else toml_value(value)


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Path):
        return json.dumps(str(value))
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _bare(annotation: Any) -> Any:
    """The annotation without ``| None`` and ``Annotated``."""
    choices = [choice for choice in get_args(annotation) if choice is not NoneType]
    if NoneType in get_args(annotation) and len(choices) == 1:
        return choices[0]
    return annotation


def _values(key: str, annotation: Any) -> tuple[str, ...]:
    if key == "recipe":  # each recipe's own settings know no other
        return tuple(toml_value(recipe) for recipe in RECIPES)
    bare = _bare(annotation)
    if get_origin(bare) is Literal:
        return tuple(toml_value(value) for value in get_args(bare))
    return ("true", "false") if bare is bool else ()


def _example(annotation: Any) -> str:
    bare = _bare(annotation)
    if get_origin(bare) is Literal:
        return toml_value(get_args(bare)[0])
    return {bool: "true", int: "1", float: "1.0"}.get(bare, '""')


def _type_words(key: str, field: FieldInfo) -> str:
    bare = _bare(field.annotation)
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(_values(key, field.annotation))
    if get_origin(bare) is dict:
        if key == "training.loss_config":
            return "table: " + "; ".join(
                f"{loss}: {', '.join(sorted(names))}" for loss, names in LOSS_SETTINGS.items() if names
            )
        return "table of texts" if get_args(bare)[1] is str else "table"
    words = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    base = "list of texts" if get_origin(bare) is list else words.get(bare, "value")
    bounds = _bounds(field)
    return f"{base}, {bounds}" if bounds else base


def _bounds(field: FieldInfo) -> str:
    said: list[str] = []
    for rule in field.metadata:
        if isinstance(rule, Ge):
            said.append(f"at least {rule.ge}")
        elif isinstance(rule, Gt):
            said.append(f"more than {rule.gt}")
        elif isinstance(rule, Le):
            said.append(f"at most {rule.le}")
        elif isinstance(rule, Lt):
            said.append(f"less than {rule.lt}")
    return ", ".join(said)
