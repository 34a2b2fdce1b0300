"""Overrides such as ``training.max_steps=5``: dotted keys, values in TOML's syntax, bare words as text."""

from __future__ import annotations

import numbers
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date, time
from typing import Any

from engine.config.problems import ConfigError, Problem

_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")

Overrides = Mapping[str, Any] | Iterable[str] | None


def parse_overrides(overrides: Overrides) -> dict[str, Any]:
    """Dotted keys and typed values from a table or from ``key=value`` texts. Raises ConfigError."""
    if overrides is None:
        return {}
    if isinstance(overrides, Mapping):
        given: dict[Any, Any] = dict(overrides)
    else:
        texts: Any = [overrides] if isinstance(overrides, str) else overrides
        if not isinstance(texts, Iterable):
            what = f"overrides are a table or texts, not {overrides!r}"
            raise ConfigError([Problem(what, remedy='Write {"section.key": value}')])
        given = dict(_parse_one(text) for text in texts)
    problems = [
        Problem(f"the override {key!r} names no key", remedy="Write it as section.key=value")
        for key in given
        if not isinstance(key, str) or not _KEY.fullmatch(key)
    ]
    if problems:
        raise ConfigError(problems)
    return {key: _given_value(key, value) for key, value in given.items()}


def _given_value(key: str, value: Any) -> Any:
    try:
        return _plain(value)
    except TypeError as error:
        remedy = "Give a number, a text, a truth value, a list or a table"
        raise ConfigError([Problem(f"override {key}: {error}", key=key, remedy=remedy)]) from error
    except RecursionError as error:
        raise ConfigError([Problem(f"override {key}: the value holds itself", key=key)]) from error


def _plain(value: Any) -> Any:
    """The value as a config could hold it. Raises TypeError for what none can."""
    if value is None or isinstance(value, bool | date | time):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # Only the plain types themselves, for strict settings refuse what merely behaves like them (numpy's numbers).
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    raise TypeError(f"no config can hold a value of the type {type(value).__name__}")


def _parse_one(text: Any) -> tuple[str, Any]:
    if not isinstance(text, str):
        raise ConfigError([Problem(f"the override {text!r} is no text", remedy="Write section.key=value")])
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(
            [Problem(f"the override {text!r} has no '='", remedy="Write it as --set section.key=value")]
        )
    return key.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """``5`` is a number, ``true`` a truth value, ``[1, 2]`` a list, ``"5"`` and ``anything else`` text."""
    if "\n" in text or not text:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, or more digits or brackets than anybody reads
        return text


def apply_overrides(table: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Put every override in its place in ``table``, making the tables on the way."""
    for key, value in overrides.items():
        *path, last = key.split(".")
        here = table
        for depth, part in enumerate(path):
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    [
                        Problem(
                            f"the override {key!r} needs a table at {'.'.join(path[: depth + 1])!r}, where the "
                            f"config has {inner!r}",
                            key=key,
                            remedy="Override that key, or change the config",
                        )
                    ]
                )
            here = inner
        here[last] = value
