"""Every ``loops-tui …`` that the documents tell a person to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
)
CONFIGS = sorted((ROOT / "examples").glob("*/*.toml"))
_FENCE = re.compile(r"^\s*```")
_LINE = re.compile(r"^\s*(?:#\s+|\$ )?(?:uv run )?(loops-tui(?: .*)?)$")
_SPAN = re.compile(r"`(loops-tui[^`]*)`")


def commands() -> dict[str, list[str]]:
    """Each command, its comment and blanks folded away → the files that print it."""
    found: dict[str, list[str]] = {}
    for page in (*PAGES, *CONFIGS):
        printed = _of_config(page) if page.suffix == ".toml" else _of_page(page)
        for command in printed:
            places = found.setdefault(command, [])
            if (name := str(page.relative_to(ROOT))) not in places:
                places.append(name)
    return found


def _of_config(config: Path) -> Iterator[str]:
    for line in config.read_text().splitlines():
        if line.startswith("#") and (match := _LINE.match(line)):
            yield folded(match[1])


def _of_page(page: Path) -> Iterator[str]:
    """Lines of fenced blocks, spans of the text, and the first cells of the table of commands."""
    fenced = table = False
    for line in page.read_text().splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced:
            if match := _LINE.match(line):
                yield folded(match[1])
        else:
            for span in _SPAN.findall(line):
                if "…" not in span:
                    yield folded(span)
            table = line.startswith("| command | does |") or (table and line.startswith("|"))
            if table and (cell := re.match(r"\| ([^|]+) \|", line)):
                for span in re.findall(r"`([^`]+)`", cell[1]):
                    yield folded(span if span.startswith("loops-tui") else f"loops-tui {span}")


def folded(command: str) -> str:
    """Without a comment, and with single blanks."""
    return " ".join(re.split(r"\s#", command)[0].split())
