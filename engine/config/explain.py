"""Turns pydantic's findings on a config into problems in plain words."""

from __future__ import annotations

from datetime import date, time
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.config.any_recipe import RECIPES
from engine.config.elsewhere import meant_elsewhere, not_here
from engine.config.later import is_later
from engine.config.problems import Problem, did_you_mean, named
from engine.config.settings import Settings

_WANTED = {
    "string_type": "text in quotes",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "path_type": "a path in quotes",
    "finite_number": "a finite number",
}
_ECHO = ("extra_forbidden", "missing")
_ALSO_CALLED = {"deployment": "dedicated"}  # by the SDK, and by BASETEN_LOOPS_SCOPE
_ONE_TABLE = "In TOML: one pair of brackets around its name, not two"
_MOST_LISTED = 12
_MOST_TOLD = 100  # a file that is no config at all can have a hundred thousand unknown keys


def explain(error: ValidationError, *, model: type[BaseModel] = Settings) -> list[Problem]:
    """One problem per finding of a config's validation."""
    details = _without_echoes(error.errors(include_url=False))
    problems = [_explain_one(detail, model) for detail in details[:_MOST_TOLD]]
    if len(details) > _MOST_TOLD:
        problems.append(Problem(f"and {len(details) - _MOST_TOLD} more problems of this kind"))
    return problems


def _without_echoes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """A misspelt or misplaced required key is one mistake: that the right one is missing need not be said as well."""
    keys = {kind: [detail["loc"] for detail in details if detail["type"] == kind] for kind in _ECHO}
    meant = {
        (*wrong[:-1], near)
        for wrong in keys["extra_forbidden"]
        if (
            near := did_you_mean(
                str(wrong[-1]), [str(k[-1]) for k in keys["missing"] if k[:-1] == wrong[:-1]]
            )
        )
    }
    misplaced = {wrong[-1] for wrong in keys["extra_forbidden"]}
    meant |= {missing for missing in keys["missing"] if missing[-1] in misplaced}
    return [detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant]


def show(value: Any) -> str:
    """A value as the config would write it, cut to a bearable length."""
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, dict):
        return "a table"
    elif isinstance(value, str):
        text = f'the text "{value}"'
    elif isinstance(value, date | time):
        text = value.isoformat()
    else:
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def words_of(detail: ErrorDetails) -> str:
    """What is wrong with a value of the user's own types, with the value; their validators speak for themselves."""
    if detail["type"] in ("value_error", "assertion_error"):
        return str(detail.get("ctx", {}).get("error") or "its validator refuses it")
    given = detail["input"]
    told = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"
    return told if isinstance(given, bytes) else f"{told}, not {show(given)}"


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> dict[str, str | None]:
    """Every dotted key of the config with its description."""
    keys: dict[str, str | None] = {}
    for name, field in model.model_fields.items():
        keys[f"{prefix}{name}"] = field.description
        inner = section_type(field.annotation)
        if inner is not None:
            keys.update(known_keys(inner, f"{prefix}{name}."))
    return keys


def section_type(annotation: Any) -> type[BaseModel] | None:
    """The table that a field of this type is; None for a plain value."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _explain_one(detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    key = ".".join(str(part) for part in detail["loc"] if isinstance(part, str))
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        name = str(detail["loc"][-1])
        return _dotted_name(name, key, model) if "." in name else _unknown_key(key, model)
    if kind == "missing":
        description = known_keys(model).get(key)
        if key == "recipe":
            return Problem(
                "the config does not say what it is for",
                key=key,
                remedy='Add recipe = "rl" (or "sft") at the top',
            )
        description = description.removesuffix(" Required.") if description else None
        section = _is_section(key, model)
        what = f"the table [{key}] is missing" if section else f"{named(key)} is missing"
        return Problem(what, key=key, remedy=f"Add it: {description}" if description else "Add it")
    if kind == "literal_error":
        expected = str(context.get("expected", ""))
        if key == "recipe":
            expected = " or ".join(f"'{recipe}'" for recipe in RECIPES)
        options = [option.strip(" '\"") for option in expected.replace(" or ", ", ").split(", ")]
        meant = did_you_mean(_ALSO_CALLED.get(given, given), options) if isinstance(given, str) else None
        remedy = f'Did you mean "{meant}"?' if meant else f"It can be {expected}"
        return Problem(f"{named(key)} cannot be {show(given)}", key=key, remedy=remedy)
    if kind in _WANTED:
        if _WANTED[kind] == "a table" and isinstance(given, list):
            return Problem(f"{named(key)} must be a table, not a list", key=key, remedy=_ONE_TABLE)
        inline = _WANTED[kind] == "a table" and isinstance(given, str) and given.startswith("{")
        remedy = "Write it as TOML does: { key = value }" if inline else None
        return Problem(f"{named(key)} must be {_WANTED[kind]}, not {show(given)}", key=key, remedy=remedy)
    limits = {
        "greater_than": ("more than", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("less than", "lt"),
        "less_than_equal": ("at most", "le"),
    }
    if kind in limits:
        word, name = limits[kind]
        return Problem(f"{named(key)} must be {word} {context.get(name)}, not {show(given)}", key=key)
    if kind == "string_too_short" and not given:
        return Problem(f"{named(key)} must not be empty", key=key, remedy="Write it, or leave it out")
    if kind == "too_short":
        return Problem(
            f"{named(key)} must not be empty", key=key, remedy="Name at least one, or leave it out"
        )
    if kind == "string_too_short":
        return Problem(f"{named(key)} must not be that short: {show(given)}", key=key)
    if kind == "value_error":
        return Problem(f"{named(key)} {context.get('error', detail['msg'])}", key=key)
    message = detail["msg"]
    return Problem(f"{named(key)}: {message[:1].lower()}{message[1:]} ({show(given)})", key=key)


def _is_section(key: str, model: type[BaseModel]) -> bool:
    here: type[BaseModel] | None = model
    for part in key.split("."):
        if here is None or part not in here.model_fields:
            return False
        here = section_type(here.model_fields[part].annotation)
    return here is not None


def _dotted_name(name: str, key: str, model: type[BaseModel]) -> Problem:
    """A key with a dot in its own name: in quotes in TOML, or written flat in JSON."""
    section, _, last = key.rpartition(".")
    known = key in known_keys(model)
    remedy = (
        f"Put {last} into the table [{section}]" if known else "Take the quotes off, or make tables of it"
    )
    return Problem(f"unknown key {name!r}: the dot is part of the quoted name", key=key, remedy=remedy)


def _unknown_key(key: str, model: type[BaseModel]) -> Problem:
    if is_later(key):
        return Problem(f"{named(key)} is not available in this version", key=key, remedy="Remove it")
    section, _, last = key.rpartition(".")
    known = known_keys(model)
    siblings = [name.rpartition(".")[2] for name in known if name.rpartition(".")[0] == section]
    meant = did_you_mean(last, siblings)
    if meant == last:
        meant = None
    elsewhere = [name for name in known if name.rpartition(".")[2] == last]
    text = f"unknown key {last!r} in [{section}]" if section else f"unknown key {last!r}"
    other = next(
        (name for name, kind in RECIPES.items() if kind is not model and key in known_keys(kind)), None
    )
    if other is not None:
        return Problem(text, key=key, remedy=f'It belongs to configs with recipe = "{other}"')
    if elsewhere:
        home = elsewhere[0].rpartition(".")[0]
        return Problem(
            text, key=key, remedy=f"It belongs in [{home}]" if home else "It belongs at the top level"
        )
    if (why := not_here(last)) is not None:
        return Problem(text, key=key, remedy=why)
    if (word := meant_elsewhere(last, known)) is not None:
        return Problem(text, key=key, remedy=f"Here it is {named(word)}")
    if meant:
        return Problem(text, key=key, remedy=f"Did you mean {meant!r}?")
    if section == "providers":  # a name, not a misspelt setting of another table
        return Problem(
            text, key=key, remedy=f"There is {' and '.join(siblings)}; local sandboxes need no table"
        )
    near = did_you_mean(last, [name.rpartition(".")[2] for name in known])
    for name in known:
        if near and name.rpartition(".")[2] == near:
            return Problem(text, key=key, remedy=f"Did you mean {named(name)}?")
    listed = ", ".join(siblings[:_MOST_LISTED]) + (" …" if len(siblings) > _MOST_LISTED else "")
    return Problem(text, key=key, remedy=f"Known here: {listed}" if siblings else "Remove it")
