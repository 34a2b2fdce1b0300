"""Write docs/settings.md from the catalog: ``python -m tools.settings_docs``."""

from __future__ import annotations

from pathlib import Path

from engine.config import catalog

TARGET = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
_HEAD = """\
# Settings

Every key of a config. This page is made from the code (`python -m tools.settings_docs`); `loops-tui settings KEY` says
the same in a terminal, and the Config screen beside the editor.

A path is relative to the config; one in an override (`--set`), and the output directory, to the working directory. An
override of a whole table (`--set 'runtime.config.options={max_turns=3}'`) replaces the table. An unknown key, a value
of the wrong type and keys that contradict each other are errors with their line.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    common = set(catalog.tables("rl")) & set(catalog.tables("sft"))
    parts.append("# Both recipes\n")
    parts += [_table(table) for table in catalog.tables("rl") if table in common]
    for recipe, title in (("rl", "Reinforcement learning"), ("sft", "Supervised fine-tuning")):
        parts.append(f'# {title}: `recipe = "{recipe}"`\n')
        parts += [_table(table) for table in catalog.tables(recipe) if table not in common]
    return "\n".join(parts)


def _table(table: catalog.Table) -> str:
    parts = [f"## {f'`[{table.name}]`' if table.name else 'Before any table'}\n"]
    if table.name and table.meaning:
        parts.append(f"{table.meaning}\n")
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{setting.name}` | {_cell(setting.type)} | {_cell(_default(setting))} | {_cell(setting.meaning)} |"
        for setting in table.settings
    ]
    return "\n".join([*parts, *rows, ""])


def _default(setting: catalog.Setting) -> str:
    return f"`{setting.default}`" if setting.default is not None else setting.default_words


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
