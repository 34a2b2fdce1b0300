"""Where a setting goes that somebody has chosen from the list, and what is written there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.config.catalog import Setting

Place = tuple[int, int]  # row and column, both from 0

_HEADER = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\- \"']+?)\s*\]\s*(?:#.*)?$")
_WORD = re.compile(r"^\s*[A-Za-z0-9_-]*\s*$")
_VALUE = re.compile(r"^\s*[A-Za-z0-9_.\"'-]+\s*=\s*")


@dataclass(frozen=True, slots=True)
class Change:
    """Text that replaces what is between two places."""

    start: Place
    end: Place
    text: str


@dataclass(frozen=True, slots=True)
class Insertion:
    """Changes to make in this order, and what to select then: the value, so that typing replaces it."""

    changes: tuple[Change, ...]
    select: tuple[Place, Place]


def header_above(lines: Sequence[str], row: int) -> int | None:
    """The row of the table header that a row of TOML lies under; None above the first one."""
    return next((place for place in range(row, -1, -1) if _HEADER.match(lines[place])), None)


def table_at(lines: Sequence[str], row: int) -> str:
    """The dotted name of the table that a row of TOML lies in; "" above the first header."""
    place = header_above(lines, row)
    found = None if place is None else _HEADER.match(lines[place])
    return _name(found[1]) if found else ""


def _name(header: str) -> str:
    return header.replace('"', "").replace("'", "").replace(" ", "")


def word_at(lines: Sequence[str], row: int) -> str:
    """What has been typed of a key on a row that holds nothing else."""
    line = lines[row] if row < len(lines) else ""
    return line.strip() if _WORD.match(line) else ""


def insert_setting(lines: Sequence[str], row: int, setting: Setting) -> Insertion:
    """Write ``name = value`` into the setting's table, which is made at the end where there is none."""
    word = word_at(lines, row)
    written = f"{setting.name} = {setting.example}"
    if table_at(lines, row) == setting.table:
        if _WORD.match(lines[row]):
            return _at(row, (Change((row, 0), (row, len(lines[row])), written),), setting)
        return _at(row + 1, (_below(lines, row, written),), setting)
    changes: list[Change] = []
    home = _last_row_of(lines, setting.table)
    if home is not None:
        changes.append(_below(lines, home, written))
        target = home + 1
    else:
        last = len(lines) - 1
        while last > 0 and not lines[last].strip():
            last -= 1
        end = (len(lines) - 1, len(lines[-1]))
        head = "\n\n" if lines[last].strip() else ""
        changes.append(Change((last, len(lines[last])), end, f"{head}[{setting.table}]\n{written}\n"))
        target = last + (3 if head else 1)
    if word:  # what was typed of the key was typed in another table
        changes.append(Change((row, 0), (row, len(lines[row])), ""))
    return _at(target, tuple(changes), setting)


def insert_value(lines: Sequence[str], row: int, value: str) -> Insertion | None:
    """Put another value behind the key on a row, its comment kept; None where there is no ``key = value``."""
    line = lines[row]
    found = _VALUE.match(line)
    if found is None:
        return None
    begin, end = found.end(), _end_of_value(line, found.end())
    change = Change((row, begin), (row, end), value)
    return Insertion((change,), ((row, begin), (row, begin + len(value))))


def value_of(line: str) -> str | None:
    """The value on a line ``key = value  # comment``, as written."""
    found = _VALUE.match(line)
    return line[found.end() : _end_of_value(line, found.end())] or None if found else None


def _end_of_value(line: str, begin: int) -> int:
    quote = ""
    for place in range(begin, len(line)):
        char = line[place]
        if quote:
            if char == quote and line[place - 1] != "\\":
                quote = ""
        elif char in "\"'":
            quote = char
        elif char == "#":
            return len(line[:place].rstrip())
    return len(line.rstrip())


def _below(lines: Sequence[str], row: int, written: str) -> Change:
    end = (row, len(lines[row]))
    return Change(end, end, f"\n{written}")


def _last_row_of(lines: Sequence[str], table: str) -> int | None:
    """The last row of a table that holds anything; the row of its header where the table is empty."""
    last: int | None = None
    here = ""
    for row, line in enumerate(lines):
        if found := _HEADER.match(line):
            here = _name(found[1])
        elif line.lstrip().startswith("[["):
            here = "[["
        if here == table and line.strip():
            last = row
    return last


def _at(row: int, changes: tuple[Change, ...], setting: Setting) -> Insertion:
    begin = len(setting.name) + len(" = ")
    return Insertion(changes, ((row, begin), (row, begin + len(setting.example))))
