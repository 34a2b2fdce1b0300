"""Text from files, names and libraries as one line that any terminal only shows."""

from __future__ import annotations

import unicodedata

MOST = 1000
"""Characters of one text: a file that is no config can hold a value of megabytes."""
_END = 200
_TABLE = "".maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\x1b"})


def one_line(text: str, most: int = MOST) -> str:
    """``text`` with what is no plain character written as an escape, and its middle left out where it is too long."""
    if len(text) > most:
        end = min(_END, most // 4)
        text = f"{text[: most - end - 3]} … {text[-end:]}"
    if text.isprintable():
        return text
    return "".join(map(_shown, text.translate(_TABLE)))


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode("ascii")
