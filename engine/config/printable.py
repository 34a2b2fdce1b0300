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


def message_of(error: BaseException) -> str:
    """What an exception says, on one line; empty where it says nothing, or where its own ``__str__`` raises."""
    try:
        return " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - it is a user's class, and may do anything
        return ""


def _shown(char: str) -> str:
    if char.isprintable() or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode("ascii")
