"""A terminal that knows as much as the application needs of one: moving, styles, characters."""

from __future__ import annotations

import codecs
import re

from rich.cells import cell_len

from loops_tui.sparing import CODES, Codes, parted

_PIECE = re.compile(
    r"\x1b\[(?P<args>[0-9;?<>=]*)[ -/]*(?P<final>[@-~])"  # CSI
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC
    r"|\x1b[P_^X][^\x1b]*\x1b\\"
    r"|\x1b[^\[\]P_^X]"
    r"|(?P<char>[^\x1b])",
    re.DOTALL,
)
_PLAIN: Codes = ("", "", "")
_INVISIBLE_ON_BLANKS = {"", "1", "2", "3", "22"}


class Picture:
    """``feed`` it what a program writes; ``cells`` then are (character, style) by row and column, styles as in
    :func:`loops_tui.sparing.parted`. What a style shows on a blank is all that a blank keeps of it."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.cells = [[(" ", _PLAIN)] * width for _ in range(height)]
        self._x = self._y = 0
        self._style = _PLAIN
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def text(self) -> str:
        return "\n".join("".join(char for char, _ in row) for row in self.cells)

    def feed_bytes(self, data: bytes) -> None:
        self.feed(self._decoder.decode(data))

    def feed(self, text: str) -> None:
        text = self._rest + text
        place = 0
        while (piece := _PIECE.match(text, place)) is not None:
            place = piece.end()
            if piece["final"] == "H":
                row, _, column = piece["args"].partition(";")
                self._y, self._x = int(row or 1) - 1, int(column or 1) - 1
            elif piece["final"] == "m":
                self._select(piece["args"])
            elif piece["char"] is not None and piece["char"] >= " ":
                self._put(piece["char"])
        self._rest = text[place:]  # a sequence whose end has not come yet

    def _select(self, args: str) -> None:
        if args in ("", "0") or args.startswith("0;"):
            self._style = _PLAIN
            args = args[2:]
        attributes, fore, back = parted(args)
        told = [found.group() for found in CODES.finditer(args)]
        self._style = (
            attributes or self._style[0],
            "" if "39" in told else fore or self._style[1],
            "" if "49" in told else back or self._style[2],
        )

    def _put(self, char: str) -> None:
        style = self._style
        if char == " " and style[0] in _INVISIBLE_ON_BLANKS:
            style = ("", "", style[2])
        wide = cell_len(char)
        for extra in range(max(1, wide)):
            if 0 <= self._y < self.height and 0 <= self._x < self.width:
                self.cells[self._y][self._x] = (char if extra == 0 else "", style)
            self._x += 1
