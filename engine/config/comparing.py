"""What differs between two configs, by key and value: order, comments and spelling do not count."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.config.catalog import toml_value

ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs. ``old`` and ``new`` are written as in TOML; None where the key is absent."""

    key: str
    old: str | None
    new: str | None

    @property
    def kind(self) -> Literal["added", "removed", "changed"]:
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Every key that was added, removed or given another value, in the order of ``after``."""
    old, new = flat(before), flat(after)
    keys = [*new, *(key for key in old if key not in new)]
    found: list[Change] = []
    for key in keys:
        left, right = old.get(key, ABSENT), new.get(key, ABSENT)
        # 1 and 1.0 are the same number, but true is no number.
        if left == right and isinstance(left, bool) == isinstance(right, bool):
            continue
        found.append(
            Change(
                key,
                None if left is ABSENT else toml_value(left),
                None if right is ABSENT else toml_value(right),
            )
        )
    return found


def changes_since_run(config_toml: str, table: Mapping[str, Any]) -> list[Change]:
    """What differs between the config that a run stored and one that is being edited (paths absolute in both).

    Raises ValueError where the stored text is no TOML.
    """
    return changes(tomllib.loads(config_toml), table)


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values; an empty table counts as a value, a null as absent."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            values.update(flat(value, f"{key}."))
        elif value is not None:
            values[key] = value
    return values
