"""Sending a terminal only the cells that have changed, and of their styles only what differs.

Textual repaints in whole pieces of a line, and writes every style out in full: some forty bytes for each of them. Here
what the terminal shows is kept cell by cell, so that a line that scrolls, a layout that is made anew or a screen that
is opened over another cost what differs between them. That is what makes a live screen bearable on a slow line.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.segment import Segment
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.events import Event, InputEvent
from textual.screen import Screen
from textual.strip import Strip

from loops_tui.one_key import OneKeyApp

#: A cell: its character ("" for the second half of a wide one) and its style as the codes that select it.
type Cell = tuple[str, str]
#: Codes of a style in three parts: attributes, colour of the text, colour of the ground. "" is the terminal's own.
type Codes = tuple[str, str, str]

APART = 8  # cells that are the same, from which on it is cheaper to move over them than to write them again
UNKNOWN: Cell = ("\0", "")
CODES = re.compile(
    r"(?P<fore>38;2;\d+;\d+;\d+|38;5;\d+|3[0-79]|9[0-7])|(?P<back>48;2;\d+;\d+;\d+|48;5;\d+|4[0-79]|10[0-7])|(?P<other>\d+)"
)
_DRAWN = {"4", "7", "9", "21", "53"}  # underlined, reversed, struck out, underlined twice, overlined
_NONE: Codes = ("", "", "")


class Painted:
    """What the terminal shows. One for each application."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = []

    def forget(self) -> None:
        """Nothing is known of the terminal any more: another program may have written to it."""
        self._rows = []

    def write_layout(self, update: LayoutUpdate, console: Console) -> str:
        width, height = update.region.width, update.region.height
        if len(self._rows) != height or (self._rows and len(self._rows[0]) != width):
            self._rows = [[UNKNOWN] * width for _ in range(height)]
        out = _Writer(console)
        for y, strips in enumerate(update.strips, update.region.y):
            self._write(out, y, update.region.x, out.cells(strips), (0, width))
        return out.text()

    def write_chops(self, update: ChopsUpdate, console: Console) -> str:
        out = _Writer(console)
        for y, start, end in update.spans:
            for stop, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is not None and x < end and stop > start:
                    self._write(out, y, x, out.cells([strip]), (start, min(end, stop)))
        return out.text()

    def _write(self, out: _Writer, y: int, x: int, cells: Sequence[Cell], within: tuple[int, int]) -> None:
        """Write those of ``cells`` (from column ``x`` of row ``y``) that lie ``within`` and are not shown yet."""
        if y >= len(self._rows):
            out.at(x, y)
            out.put(cells)
            return
        row = self._rows[y]
        first, last = max(x, within[0]), min(x + len(cells), within[1], len(row))
        place = first
        while place < last:
            if cells[place - x] == row[place]:
                place += 1
                continue
            start = place
            if not cells[start - x][0] and start > x:
                start -= 1  # the second half of a wide character: it is written as a whole
            end, same = place + 1, 0
            place += 1
            while place < last and same < APART:
                same = same + 1 if cells[place - x] == row[place] else 0
                place += 1
                if not same:
                    end = place
            while end - x < len(cells) and not cells[end - x][0]:
                end += 1
            out.at(start, y)
            out.put(cells[start - x : end - x])
            row[start:end] = cells[start - x : end - x]
            place = max(place, end)


class SparingApp[ResultT](OneKeyApp[ResultT]):
    """An app that sends its terminal differences."""

    def __init__(self, **settings: Any) -> None:
        """``settings`` are those of Textual's ``App``."""
        self.painted = Painted()
        self.pressed_at = -math.inf  # when the last key or click came (monotonic)
        super().__init__(**settings)

    def on_mount(self) -> None:
        for changed in (self.app_suspend_signal, self.app_resume_signal):
            changed.subscribe(self, lambda _: self.painted.forget())

    def on_resize(self) -> None:
        self.painted.forget()

    async def on_event(self, event: Event) -> None:
        if isinstance(event, InputEvent):
            self.pressed_at = time.monotonic()
        await super().on_event(event)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, LayoutUpdate | ChopsUpdate):
            renderable = SparingUpdate(self.painted, renderable)
        super()._display(screen, renderable)


class SparingUpdate(CompositorUpdate):
    """An update of Textual's compositor, written sparingly."""

    def __init__(self, painted: Painted, update: LayoutUpdate | ChopsUpdate) -> None:
        self._painted = painted
        self.update = update

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.update.__rich_console__(console, options)

    def render_segments(self, console: Console) -> str:
        """The bytes for the terminal; "" where it shows all of this already."""
        if isinstance(self.update, LayoutUpdate):
            return self._painted.write_layout(self.update, console)
        return self._painted.write_chops(self.update, console)


class _Writer:
    """Text with the escape sequences between it."""

    def __init__(self, console: Console) -> None:
        self._colours = console._color_system or ColorSystem.TRUECOLOR
        self._parts: list[str] = []
        self._codes = _NONE

    def cells(self, strips: Iterable[Strip]) -> list[Cell]:
        """The cells of a line; what is no text (a control code in a strip) is left out."""
        cells: list[Cell] = []
        for strip in strips:
            for segment in strip:
                cells.extend(self._of(segment))
        return cells

    def _of(self, segment: Segment) -> Iterable[Cell]:
        text, style, control = segment
        if control:
            return []
        codes = ""
        if style is not None:
            codes = style._ansi if style._ansi is not None else Strip.render_ansi(style, self._colours)
        blank = of_blank(codes)
        if text.isascii():
            return [(char, codes if char != " " else blank) for char in text]
        found: list[Cell] = []
        for char in text:
            wide = cell_len(char)
            if wide == 0 and found:
                found[-1] = (found[-1][0] + char, codes)
            else:
                found.extend([(char, codes), ("", codes)][: max(1, wide)])
        return found

    def at(self, x: int, y: int) -> None:
        self._parts.append(Control.move_to(x, y).segment.text)

    def put(self, cells: Sequence[Cell]) -> None:
        for char, codes in cells:
            wanted = parted(codes)
            if wanted != self._codes:
                self._parts.append(change(self._codes, wanted))
                self._codes = wanted
            self._parts.append(char)

    def text(self) -> str:
        """Everything, ending in the terminal's own style."""
        if self._codes != _NONE:
            self._parts.append("\x1b[0m")
        return "".join(self._parts)


@lru_cache(4096)
def parted(codes: str) -> Codes:
    """Codes of a style in their three parts."""
    fore, back, others = "", "", []
    for found in CODES.finditer(codes):
        if found["fore"]:
            fore = "" if found["fore"] == "39" else found["fore"]
        elif found["back"]:
            back = "" if found["back"] == "49" else found["back"]
        else:
            others.append(found["other"])
    return ";".join(others), fore, back


@lru_cache(4096)
def of_blank(codes: str) -> str:
    """What shows of a style on a blank: its ground, and lines through or under it."""
    attributes, _, back = parted(codes)
    return codes if _DRAWN & set(attributes.split(";")) else back


@lru_cache(4096)
def change(old: Codes, new: Codes) -> str:
    """The shortest sequence from one style to another."""
    if old[0] != new[0]:
        return f"\x1b[{';'.join(['0', *(part for part in new if part)])}m"
    parts = []
    if old[1] != new[1]:
        parts.append(new[1] or "39")
    if old[2] != new[2]:
        parts.append(new[2] or "49")
    return f"\x1b[{';'.join(parts)}m"
