"""``settings``: every key of a config with its type, default and meaning, or one of them in detail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from loops_tui.commands.output import DONE, Output, UsageError
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from engine.config.catalog import Setting, Table

WIDEST = 110
NARROWEST = 40


def settings(key: str | None, out: Output) -> int:
    """Print all settings, those of a table, or one. Raises UsageError for a key that there is not."""
    from engine.config import catalog

    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    if key is None:
        tables = catalog.tables()
        out.value([setting.to_json() for setting in catalog.settings()])
        for line in _all(tables, width):
            out.line(line)
        return DONE
    wanted = key.strip().strip("[]").strip()
    found = catalog.setting(wanted)
    named = [setting for setting in catalog.settings() if setting.name == wanted]
    if found is None and catalog.table(wanted) is None and len(named) == 1:
        found = named[0]
    if found is not None:
        out.value(found.to_json())
        for line in _one(found, width):
            out.line(line)
        return DONE
    inside = [
        table for table in catalog.tables() if table.name == wanted or table.name.startswith(f"{wanted}.")
    ]
    if not inside or not wanted:
        raise UsageError(_unknown(key, [setting.key for setting in named]))
    out.value([setting.to_json() for table in inside for setting in table.settings])
    for line in _all(inside, width):
        out.line(line)
    return DONE


def _unknown(key: str, named: list[str]) -> str:
    """Why there is nothing to tell: several settings of that name, a near one, or none."""
    from engine.config import catalog

    if named:
        return f"{key} is in {_listed(named)}: name one of them"
    near = catalog.nearest(key)
    return f"there is no setting {key!r}; " + (
        f"did you mean {near}?" if near else "`loops-tui settings` lists them all"
    )


def _listed(keys: list[str]) -> str:
    *before, last = keys
    return f"{', '.join(before)} and {last}" if before else last


def _all(tables: list[Table] | tuple[Table, ...], width: int) -> Iterator[str]:
    for place, table in enumerate(tables):
        if place:
            yield ""
        title = f"[{table.name}]" if table.name else "(top level)"
        yield from wrap(f"{title}  {table.meaning}", width)
        for setting in table.settings:
            head = f"  {setting.name}"
            facts = f"{setting.type}; {_default(setting)}"
            yield from _indented(f"{head}  ({facts})", width, "      ")
            yield from _indented(f"    {setting.meaning}", width, "    ")


def _default(setting: Setting) -> str:
    return "required" if setting.required else f"default: {setting.default_words}"


def _one(setting: Setting, width: int) -> Iterator[str]:
    yield setting.key
    yield ""
    yield from _indented(setting.meaning, width, "")
    yield ""
    facts = {
        "Type": setting.type,
        "Default": setting.default_words,
        "In a config": f"[{setting.table}]  {setting.name} = {setting.example}"
        if setting.table
        else f"{setting.name} = {setting.example}",
        "Override": f"--set {setting.key}=…",
    }
    for name, value in facts.items():
        yield from _indented(f"{name + ':':<13}{value}", width, " " * 13)


def _indented(text: str, width: int, indent: str) -> Iterator[str]:
    first, *_ = pieces = list(wrap(text, width))
    yield first
    rest = text[len(first) :].strip()
    if len(pieces) > 1:
        for piece in wrap(rest, width - len(indent)):
            yield indent + piece
