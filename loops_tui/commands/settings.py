"""``settings``: every key of a config with its type, default and meaning, or one of them in detail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import DONE, Output, UsageError
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from engine.config.catalog import Setting

WIDEST = 110
NARROWEST = 40


def settings(key: str | None, out: Output) -> int:
    """Print all settings, those of a table, or one. Raises UsageError for a key that there is not."""
    wanted = (key or "").strip().strip("[]").strip()
    told = _variants()
    if wanted:
        told = _named(wanted, told) or [pair for pair in told if _within(pair[0].table, wanted)]
    if not told or (key is not None and not wanted):
        raise UsageError(_unknown(wanted or repr(key)))
    one = bool(wanted) and len({setting.key for setting, _ in told}) == 1 and not _is_table(wanted)
    values = [_value(setting, recipes) for setting, recipes in told]
    out.value(values[0] if one and len(values) == 1 else values)
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    for line in _in_detail(told, width) if one else _listing(told, width):
        out.line(line)
    return DONE


def _variants() -> list[tuple[Setting, tuple[str, ...]]]:
    """Every setting with the recipes that have exactly it: what differs between recipes is there for each."""
    from engine.config import catalog

    found: dict[Setting, tuple[str, ...]] = {}
    for recipe in catalog.recipes():
        for setting in catalog.settings(recipe):
            found[setting] = (*found.get(setting, ()), recipe)
    return list(found.items())


def _named(wanted: str, told: list[tuple[Setting, tuple[str, ...]]]) -> list[tuple[Setting, tuple[str, ...]]]:
    """The settings of a dotted key, or of a bare name that only one key has."""
    from engine.config import catalog

    keys = {
        found.key for recipe in catalog.recipes() if (found := catalog.setting(wanted, recipe)) is not None
    }
    if not keys and not _is_table(wanted):
        keys = {setting.key for setting, _ in told if setting.name == wanted}
        if len(keys) > 1:
            *before, last = sorted(keys)
            raise UsageError(f"{wanted} is in {', '.join(before)} and {last}: name one of them")
    return [pair for pair in told if pair[0].key in keys]


def _is_table(name: str) -> bool:
    from engine.config import catalog

    return any(_within(table.name, name) for recipe in catalog.recipes() for table in catalog.tables(recipe))


def _within(table: str, name: str) -> bool:
    return table == name or table.startswith(f"{name}.")


def _unknown(key: str) -> str:
    from engine.config import catalog

    near = catalog.nearest(key)
    hint = f"did you mean {near}?" if near else "`loops-tui settings` lists them all"
    return f"there is no setting {key!r}; {hint}"


def _value(setting: Setting, recipes: tuple[str, ...]) -> dict[str, Any]:
    return {**setting.to_json(), "recipes": list(recipes)}


def _listing(told: list[tuple[Setting, tuple[str, ...]]], width: int) -> Iterator[str]:
    """Settings under their tables; those of one recipe alone say so."""
    from engine.config import catalog

    before: tuple[str, str] | None = None
    for setting, recipes in told:
        recipe = recipes[0]
        if (recipe, setting.table) != before:
            if before is not None:
                yield ""
            table = catalog.table(setting.table, recipe)
            title = f"[{setting.table}]" if setting.table else "(top level)"
            only = f'recipe = "{recipe}": ' if recipe != catalog.recipes()[0] else ""
            yield from wrap(f"{title}  {only}{table.meaning if table is not None else ''}", width)
            before = (recipe, setting.table)
        yield from _hanging(f"  {setting.name}  ({setting.type}; {_default(setting)})", width, "      ")
        yield from _hanging(f"    {setting.meaning}", width, "    ")


def _default(setting: Setting) -> str:
    return "required" if setting.required else f"default: {setting.default_words}"


def _in_detail(told: list[tuple[Setting, tuple[str, ...]]], width: int) -> Iterator[str]:
    """One setting; where recipes differ, what it is in each."""
    for place, (setting, recipes) in enumerate(told):
        if place:
            yield ""
        yield setting.key + (f'  (recipe = "{recipes[0]}")' if len(told) > 1 else "")
        yield ""
        yield from wrap(setting.meaning, width)
        yield ""
        written = f"{setting.name} = {setting.example}"
        facts = {
            "Type": setting.type,
            "Default": setting.default_words,
            "In a config": f"[{setting.table}]  {written}" if setting.table else written,
            "Override": f"--set {setting.key}=…",
            "Recipes": ", ".join(recipes),
        }
        for name, value in facts.items():
            yield from _hanging(f"{name + ':':<13}{value}", width, " " * 13)


def _hanging(text: str, width: int, indent: str) -> Iterator[str]:
    """The text in lines, all but the first one indented."""
    first, *rest = wrap(text, width)
    yield first
    if rest:
        for piece in wrap(text[len(first) :].strip(), width - len(indent)):
            yield indent + piece
