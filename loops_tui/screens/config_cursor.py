"""Which setting the cursor is on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loops_tui.screens.config_insert import header_above, table_at, value_of, word_at

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config.catalog import Setting, Table


_SFT = re.compile(r"""^\s*(?:recipe\s*=\s*["']sft["']|\{?\s*"recipe"\s*:\s*"sft")""", re.MULTILINE)

MOST_SCANNED = 100_000  # characters: more would hold up every key


def recipe_of(lines: Sequence[str]) -> str:
    """The recipe that a text is for, also where it cannot be parsed."""
    return "sft" if _SFT.search("\n".join(lines)) else "rl"


def setting_at(lines: list[str], row: int, path: Path) -> tuple[Setting | Table | None, str | None]:
    """The setting or table that a row (from 0) belongs to, and the value that the row gives it."""
    from engine.config import catalog

    key, recipe = key_at(lines, row, path), recipe_of(lines)
    if path.suffix.lower() == ".json":
        return (
            (None, None)
            if key is None
            else (catalog.setting(key, recipe) or catalog.table(key, recipe), None)
        )
    here = table_at(lines, row)
    if key is None or not lines[row].strip() or lines[row].lstrip().startswith("#"):
        return catalog.table(here, recipe), None
    found = catalog.setting(key, recipe)
    if found is None:
        return catalog.table(key, recipe) or catalog.table(here, recipe), None
    return found, value_of(lines[row]) if found.key == key else None


def key_at(lines: list[str], row: int, path: Path) -> str | None:
    """The dotted key that a row belongs to, also while it is being typed."""
    from engine.config.linting import key_lines

    word = word_at(lines, row)
    if word and path.suffix.lower() != ".json":
        table = table_at(lines, row)
        return f"{table}.{word}" if table else word
    begin = 0 if path.suffix.lower() == ".json" else header_above(lines, row) or 0
    above = "\n".join(lines[begin : row + 1])
    return key_lines(above, path).at(row + 1 - begin) if len(above) <= MOST_SCANNED else None


def keys_in(text: str, path: Path, recipe: str) -> list[str]:
    """Settings that the text already has."""
    from engine.config import catalog
    from engine.config.linting import key_lines

    lines = key_lines(text, path)
    return [setting.key for setting in catalog.settings(recipe) if setting.key in lines]
