"""The only door from stored text to the screen.

A rollout can write whatever it likes into a transcript: sequences that move the cursor, fill the operator's clipboard
or turn text around. Textual passes such bytes on to the terminal, so every stored text goes through :func:`safe`
before any widget sees it. What cannot be shown is not dropped but shown as a mark, because that a model wrote it is
worth knowing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.text import Text

ELLIPSIS = "…"
LINE_LIMIT = 4000  # characters of one line: more is clipped before anything measures or styles it

# Whole sequences first: a payload (a title, a clipboard text) is noise once its introducer no longer works.
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)(?P<params>[0-?]*)(?P<inter>[ -/]*)(?P<final>[@-~])"  # CSI
    r"|(?:\x1b\]|\x9d)(?P<osc>[^\x07\x1b\x9c]*)(?:\x07|\x1b\\|\x9c|$)"  # OSC
    r"|(?:\x1b(?P<string>[PX^_])|(?P<c1>[\x90\x98\x9e\x9f]))[^\x1b\x9c]*(?:\x1b\\|\x9c|$)"  # DCS, SOS, PM, APC
)
_C1_STRINGS = {"\x90": "P", "\x98": "X", "\x9e": "^", "\x9f": "_"}
# Printable by Unicode's book, invisible in a terminal.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
_PRESENTATION = frozenset("\ufe0e\ufe0f")  # they change a glyph's width in some terminals and not in others
_SUSPECT = re.compile("[\u115f\u1160\u3164\uffa0\ufe0e\ufe0f\u034f]")


def _sequence_mark(match: re.Match[str]) -> str:
    final = match.group("final")
    if final is not None:
        return f"␛[{final}"
    osc = match.group("osc")
    if osc is not None:
        number = osc.split(";", 1)[0][:4]
        return f"␛]{number}{ELLIPSIS}"
    kind = match.group("string") or _C1_STRINGS[match.group("c1")]
    return f"␛{kind}{ELLIPSIS}"


def _character_mark(char: str) -> str:
    code = ord(char)
    if char in "\t\u00a0\u2007\u202f":
        return " "
    if char in _PRESENTATION:
        return ""
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if char.isspace() and code not in (0x85, 0x2028, 0x2029):
        return " "
    return f"‹{code:02X}›"


def _is_plain(text: str) -> bool:
    return text.isprintable() and (text.isascii() or _SUSPECT.search(text) is None)


def _harmless(char: str) -> bool:
    return (
        char.isprintable() and char not in _BLANK_LETTERS and char not in _PRESENTATION and char != "\u034f"
    )


def safe(text: str, limit: int | None = None) -> str:
    """``text`` as one line that a terminal only shows: nothing in it moves a cursor or hides another character.

    Line breaks become marks (use :func:`safe_lines` for a text of several lines), tabs become spaces, and more than
    ``limit`` characters (:data:`LINE_LIMIT` where none is given) are clipped with an ellipsis.
    """
    bound = LINE_LIMIT if limit is None else max(1, limit)
    clipped = len(text) > bound
    # Clip before anything else: a line of 3 MB must cost no more than a short one.
    head = text[: bound - 1] if clipped else text
    head = _marked(head)
    if len(head) > bound:
        head, clipped = head[: bound - 1], True
    return head + ELLIPSIS if clipped else head


def _marked(text: str) -> str:
    if _is_plain(text):
        return text
    text = _SEQUENCES.sub(_sequence_mark, text)
    return "".join(char if _harmless(char) else _character_mark(char) for char in text)


def safe_cells(text: str) -> str:
    """``text`` with as many characters as it has, each that could do harm replaced by a mark; tabs stay.

    For an editor, where a place in the line on the screen must be the same place in the text.
    """
    if _is_plain(text):
        return text
    return "".join(char if char == "\t" or _harmless(char) else _cell_mark(char) for char in text)


def _cell_mark(char: str) -> str:
    mark = _character_mark(char)
    return mark if len(mark) == 1 else "\ufffd"


def safe_lines(text: str) -> Iterator[str]:
    """The lines of ``text``, each made safe. Only a line feed ends a line; other separators show as marks."""
    for line in text.split("\n"):
        yield safe(line[:-1] if line.endswith("\r") else line)


def safe_block(text: str) -> str:
    """A whole text for the clipboard: safe to paste, with its line breaks and tabs, nothing clipped."""
    lines = (line[:-1] if line.endswith("\r") else line for line in text.split("\n"))
    return "\n".join("\t".join(_marked(cell) for cell in line.split("\t")) for line in lines)


def safe_rich(text: str, limit: int | None = None) -> Text:
    """Safe text as a Rich ``Text``: brackets stay brackets, no markup is read."""
    return Text(safe(text, limit), no_wrap=True, end="")
