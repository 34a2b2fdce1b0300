"""Overrides such as ``training.max_steps=5``: dotted keys, values in TOML's syntax, bare words as text."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from engine.config.problems import ConfigError, Problem

_KEY = re.compile(r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")

Overrides = Mapping[str, Any] | Iterable[str] | None


def parse_overrides(overrides: Overrides) -> dict[str, Any]:
    """Dotted keys and typed values from a table or from ``key=value`` texts."""
    if overrides is None:
        return {}
    if isinstance(overrides, Mapping):
        parsed = {
            key: os.fspath(value) if isinstance(value, os.PathLike) else value
            for key, value in overrides.items()
        }
    else:
        parsed = dict(_parse_one(text) for text in overrides)
    problems = [
        Problem(f"the override {key!r} names no key", remedy="Write it as section.key=value")
        for key in parsed
        if not isinstance(key, str) or not _KEY.match(key)
    ]
    if problems:
        raise ConfigError(problems)
    return parsed


def _parse_one(text: str) -> tuple[str, Any]:
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
    except tomllib.TOMLDecodeError:
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
                        )
                    ]
                )
            here = inner
        here[last] = value
