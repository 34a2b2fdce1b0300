"""What a file is that is not what it should be, told by how it begins."""

from __future__ import annotations

import json
import re
from typing import Any

_ROWS = "Write its rows as JSONL, one JSON object a line"
_FORMATS: tuple[tuple[bytes, str, str], ...] = (
    (b"\xff\xfe\x00\x00", "is UTF-32 text", "Save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "is UTF-32 text", "Save it as UTF-8"),
    (b"\xff\xfe", "is UTF-16 text", "Save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text", "Save it as UTF-8"),
    (b"\x1f\x8b", "is compressed (gzip)", "Unpack it: gzip -d"),
    (b"(\xb5/\xfd", "is compressed (zstd)", "Unpack it: zstd -d"),
    (b"BZh", "is compressed (bzip2)", "Unpack it: bzip2 -d"),
    (b"\xfd7zXZ\x00", "is compressed (xz)", "Unpack it: xz -d"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it"),
    (b"PAR1", "is a Parquet file", _ROWS),
    (b"ARROW1", "is an Arrow file", _ROWS),
    (b"SQLite format 3", "is an SQLite database", _ROWS),
    (b"version https://git-lfs.github.com/", "is a Git LFS pointer", "Run: git lfs pull"),
)
_PAGE = re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
_COMMENT = re.compile(r"//|/\*|#")


def other_format(data: bytes) -> tuple[str, str] | None:
    """What a file is that holds no text, or text of quite another kind, and what helps; None for any other file."""
    for begin, what, remedy in _FORMATS:
        if data.startswith(begin):
            return what, remedy
    if b"\x00" in data[:2]:  # every other byte of Latin letters
        return "is UTF-16 text", "Save it as UTF-8"
    if _PAGE.match(data):
        return "is a web page", "Download the file itself"
    return None


class DoubledKey(Exception):
    """A JSON object says a key twice: of its two values one would go unread."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} stands twice in one object")
        self.key = key


def single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For ``json.loads(…, object_pairs_hook=…)``. Raises DoubledKey."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        raise DoubledKey(next(name for name in names if names.count(name) > 1))
    return fields


#: What the parser says of a text in quotes, and what helps.
_TEXT = {
    "Invalid \\escape": "Write two backslashes",
    "Invalid control character at": "Write it as an escape, such as \\t or \\n",
    "Unterminated string starting at": "Close the quote; a line's end inside a text is written \\n",
}


def json_remedy(error: json.JSONDecodeError, otherwise: str) -> str:
    """What was probably meant where JSON goes wrong."""
    rest = error.doc[error.pos :].lstrip()
    if _COMMENT.match(rest):
        return "JSON has no comments: remove it"
    if rest.startswith("'"):
        return 'JSON takes "double quotes" only'
    if rest[:1] in ("\u201c", "\u201d", "\u2018", "\u2019"):
        return "Use straight quotes"
    if rest.startswith("```"):
        return "Remove the marks of Markdown"
    if error.msg.startswith("Expecting property name") and re.match(r"[A-Za-z_]", rest):
        return "Put each key in double quotes"
    if error.msg in _TEXT:
        return _TEXT[error.msg]
    if re.match(r"(True|False|None)\b", rest):
        return "JSON writes true, false and null"
    if "trailing comma" in error.msg or (rest[:1] in ("}", "]") and error.msg.startswith("Expecting")):
        return "Remove the comma before it"
    if error.msg == "Extra data" and rest.startswith(","):
        return "Remove the comma at its end"
    if error.msg.startswith("Expecting ','"):
        return "Put a comma, or close what is open"
    return otherwise
