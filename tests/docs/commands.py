"""Every command that the documents tell a person to type."""

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
#: What blocks that hold no command are marked as. In all others, each line is a command.
NO_COMMANDS = ("python", "text", "toml")
_FENCE = re.compile(r"^\s*```(.*)$")
#: How a command within a sentence or in a config's comment begins.
_BEGINS = re.compile(
    r"(?:\$ )?(?=(?:apt|apt-get|bash|brew|bwrap|cd|cp|curl|docker|git|lint-imports|loops-tui|make|mkdir|npm|pip|pipx"
    r"|pyright|pytest|python|python3|rsvg-convert|ruff|sh|source|ssh|tmux|uv|uvx|wget)(?: |$)|\.(?:ci)?/\w)"
)
_CELL = re.compile(r"\| ([^|]+) \|")


def commands(*, of_the_program: bool) -> dict[str, list[str]]:
    """Each ``loops-tui …``, or each other command → the files that print it.

    Comments, blanks and a ``uv run`` before ``loops-tui`` are folded away.
    """
    found: dict[str, list[str]] = {}
    for page in (*PAGES, *CONFIGS):
        if not page.is_file():
            continue
        text = page.read_text()
        for printed in _of_config(text) if page.suffix == ".toml" else of_page(text):
            command = folded(printed)
            if (command.split()[0] == "loops-tui") == of_the_program:
                places = found.setdefault(command, [])
                if (name := str(page.relative_to(ROOT))) not in places:
                    places.append(name)
    return found


def _of_config(text: str) -> Iterator[str]:
    """Lines of its comments."""
    for line in text.splitlines():
        if line.startswith("#") and _BEGINS.match(line.lstrip("# ")):
            yield line.lstrip("# ")


def of_page(text: str) -> Iterator[str]:
    """Lines of blocks, spans of the text, and the first cells of the tables of commands."""
    for fenced, part in _parts(text):
        if fenced:
            yield part
            continue
        for span in re.findall(r"`([^`]+)`", part):
            if _BEGINS.match(span) and "…" not in span:
                yield span


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """(True, a line of a block that holds commands) or (False, a paragraph, a table's row)."""
    language: str | None = None
    table, paragraph = False, ""
    for line in [*text.splitlines(), ""]:
        fence = _FENCE.match(line)
        row = line.startswith("|")
        if paragraph and (fence or row or not line.strip()):
            yield False, paragraph
            paragraph = ""
        if fence:
            language = fence[1].strip() if language is None else None
        elif language is not None:
            if language not in NO_COMMANDS and line.strip() and not line.lstrip().startswith("#"):
                yield True, line
        elif row:
            table = line.startswith("| command | does |") or table
            cell = _CELL.match(line)
            for span in re.findall(r"`([^`]+)`", cell[1]) if table and cell else ():
                yield True, span if _BEGINS.match(span) else f"loops-tui {span}"
            yield False, line
        else:
            table = False
            paragraph += f" {line.strip()}"


def folded(command: str) -> str:
    """Without a prompt and a comment, and with single blanks."""
    words = " ".join(re.split(r"\s#", command)[0].split()).removeprefix("$ ")
    return words.removeprefix("uv run ") if words.startswith("uv run loops-tui") else words
