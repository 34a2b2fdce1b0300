"""ASCII mode: every glyph that is not ASCII becomes one that is, in one place, on its way to the terminal.

Each replacement is as wide as what it replaces, so nothing moves. Screens draw boxes, sparks, braille plots and marks
without a thought for this; text that models wrote passes here as well.
"""

from __future__ import annotations

import locale
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len

if TYPE_CHECKING:
    from textual.driver import Driver

_PAIRS = (
    # boxes, rules, axes
    ("─━┄┅┈┉╌╍═╴╶╸╺╼╾▔", "-"), ("│┃┆┇┊┋╎╏║╵╷╹╻╽╿▏▎▍▕", "|"), ("┌┐└┘├┤┬┴┼╭╮╯╰╔╗╚╝╠╣╦╩╬┏┓┗┛┣┫┳┻╋", "+"),
    # sparks, bars, shades
    ("▁▂", "_"), ("▃", "."), ("▄", "-"), ("▅", "="), ("▆", "+"), ("▇", "*"), ("█▊▉▋▌▐▀", "#"), ("▓", "%"), ("▒", "="), ("░", "+"),
    # marks
    ("●◉⬤■◆▪", "*"), ("○◌◯□◇▫◐◑◒◓", "o"), ("‖", "="), ("✓✔", "v"), ("✗✘✕×", "x"), ("▶▸►›»❯→⟶⇒", ">"), ("◀◂◄‹«❮←", "<"),
    ("▲▴↑⇡△", "^"), ("▼↓⇣▽", "v"), ("▾", "-"), ("↵⏎␍", "<"), ("·•∙⋅", "."), ("∷", ";"), ("…", "~"), ("±", "~"), ("≈≃∼", "~"),
    ("≤", "<"), ("≥", ">"), ("≠", "!"), ("−–—‐‑‒", "-"), ("“”„", '"'), ("‘’‚′", "'"), ("␛␡", "^"), ("⏸", "="), ("∞", "8"),
    ("↕", "|"), ("↔", "-"), ("σ", "s"), ("Δ", "d"), ("µμ", "u"), ("²", "2"), ("³", "3"), ("°", "o"),
)  # fmt: skip
_BRAILLE = range(0x2801, 0x2900)
_UPPER, _LOWER = 0x1B, 0xE4  # a cell's dots in its two upper rows, and in its two lower ones


class _Table(dict[int, str]):
    """For ``str.translate``: a replacement is found once, when its character is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = replacement = chr(code) if code < 0x80 else _replacement(chr(code))
        return replacement


def _replacement(char: str) -> str:
    if ord(char) in _BRAILLE:
        dots = ord(char) - 0x2800
        upper, lower = bool(dots & _UPPER), bool(dots & _LOWER)
        return ":" if upper and lower else "'" if upper else "."
    cells = cell_len(char)
    letters = "".join(part for part in unicodedata.normalize("NFKD", char) if " " <= part <= "~")
    return letters if letters and len(letters) == cells else ("?" if char != "\u2800" else " ") * cells


_TABLE = _Table({ord(char): plain for chars, plain in _PAIRS for char in chars})


def to_ascii(text: str) -> str:
    """``text`` in ASCII alone, cell for cell."""
    return text if text.isascii() else text.translate(_TABLE)


def ascii_driver(base: type[Driver]) -> type[Driver]:
    """A driver like ``base`` that sends nothing but ASCII."""

    class AsciiDriver(base):
        def write(self, data: str) -> None:
            super().write(to_ascii(data))

    return AsciiDriver


def wants_ascii(environ: Mapping[str, str]) -> bool:
    """Whether the locale promises no more than ASCII or an eight-bit character set."""
    named = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    _, _, codeset = named.partition(".")
    if codeset:
        return codeset.partition("@")[0].replace("-", "").lower() != "utf8"
    return locale.getencoding().replace("-", "").lower() != "utf8"
