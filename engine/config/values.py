"""Values that no setting can have, whatever its type says: found before a type is asked, so that one sentence tells it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine.config.problems import Problem, named

LARGEST = 2**53
"""Larger whole numbers are no longer exact in JSON, and larger still no store takes them."""
_OPTIONS = "runtime.config.options"  # numbers there are the episode's business


OUTPUT = "output.output_dir"
_VARIABLE = re.compile(r"\$(\{\w*\}?|[A-Za-z_]\w*)")


def unusable_values(
    table: Mapping[str, Any], file_keys: tuple[str, ...], name_keys: tuple[str, ...]
) -> Iterator[Problem]:
    """A problem for each text that cannot be written, each path or name that is empty, each number out of all range.

    ``file_keys``: whose values are paths on this machine. ``name_keys``: others that must not be blank.
    """
    yield from _walk(table, "", frozenset(file_keys), frozenset({*file_keys, *name_keys}))


def _walk(value: Any, key: str, files: frozenset[str], filled: frozenset[str]) -> Iterator[Problem]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            inner_key = f"{key}.{name}" if key else str(name)
            if (reason := _unwritable(str(name))) is not None:
                yield Problem(f"the key {name!r} {reason}", key=inner_key, remedy="Write another key")
            else:
                yield from _walk(inner, inner_key, files, filled)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, key, files, filled)
    elif isinstance(value, str):
        if (reason := _unwritable(value)) is not None:
            yield Problem(f"{named(key)} {reason}: {value!r}", key=key, remedy="Remove it")
        elif not value.strip() and key in filled:
            yield Problem(f"{named(key)} is empty", key=key, remedy="Write it, or leave the key out")
        elif key in files:
            yield from _no_path(value, key)
    elif key != _OPTIONS and not key.startswith(f"{_OPTIONS}."):
        yield from _number_problems(value, key)


def _no_path(value: str, key: str) -> Iterator[Problem]:
    """What would be taken for a name as it stands, and is meant otherwise."""
    if "://" in value:
        told, remedy = "read", "Download it and name the file"
        if key == OUTPUT:
            told, remedy = "written", "Name a directory"
        text = f"{named(key)} is the address {value!r}, and only files of this machine are {told}"
        yield Problem(text, key=key, remedy=remedy)
    elif (variable := _VARIABLE.search(value)) is not None:
        text = f"{named(key)} holds {variable[0]!r}, and variables are not looked up in paths"
        yield Problem(text, key=key, remedy="Write the path itself; ~/ is your home directory")
    elif value.startswith("~") and os.path.expanduser(value) == value:
        text = f"{named(key)} begins with {value.partition('/')[0]!r}, and nobody here is called that"
        yield Problem(text, key=key, remedy="Write the path itself; ~/ is your home directory")


def _number_problems(value: Any, key: str) -> Iterator[Problem]:
    if isinstance(value, float) and not math.isfinite(value):
        yield Problem(f"{named(key)} must be a finite number, not {value}", key=key, remedy="Write a number")
    elif isinstance(value, int) and abs(value) > LARGEST:
        yield Problem(f"{named(key)} is too large a number", key=key, remedy=f"Write one up to {LARGEST}")


def _unwritable(text: str) -> str | None:
    if "\x00" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character"
    return None
