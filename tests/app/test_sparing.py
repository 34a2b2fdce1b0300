"""What is sent to a terminal as differences makes the same picture as everything sent in full."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region

from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from loops_tui.sparing import _CODES, Painted, SparingUpdate, change, parted
from tests.app.conftest import FakeHosting, until_shown

_PIECE = re.compile(r"\x1b\[(?P<args>[0-9;]*)(?P<final>[A-Za-z])|(?P<char>[^\x1b])", re.DOTALL)


class Screen:
    """A terminal that knows as much as these updates need: moving, styles, characters."""

    def __init__(self, width: int, height: int) -> None:
        self.cells = [[(" ", ("", "", ""))] * width for _ in range(height)]
        self._x = self._y = 0
        self._style = ("", "", "")

    def feed(self, text: str) -> None:
        for piece in _PIECE.finditer(text):
            args, final, char = piece["args"], piece["final"], piece["char"]
            if final == "H":
                row, column = (int(part) for part in args.split(";"))
                self._x, self._y = column - 1, row - 1
            elif final == "m":
                self._select(args)
            elif char is not None and char not in "\r\n":
                self._put(char)

    def _select(self, args: str) -> None:
        if args in ("", "0") or args.startswith("0;"):
            self._style = ("", "", "")
            args = args[2:]
        attributes, fore, back = parted(args)
        told = [found.group() for found in _CODES.finditer(args)]
        self._style = (
            attributes or self._style[0],
            "" if "39" in told else fore or self._style[1],
            "" if "49" in told else back or self._style[2],
        )

    def _put(self, char: str) -> None:
        attributes, fore, back = self._style
        shown = (
            (attributes, "" if char == " " else fore, back)
            if char == " " and attributes != "4"
            else self._style
        )
        shown = ("", "", back) if char == " " and attributes in ("", "1", "2") else shown
        self.cells[self._y][self._x] = (char, shown)
        for extra in range(1, cell_len(char)):
            self.cells[self._y][self._x + extra] = ("", shown)
        self._x += max(1, cell_len(char))


class Watched(LoopsApp):
    """An app whose updates go to such a terminal too."""

    def start_watching(self, width: int, height: int) -> None:
        self.truecolor = Console(color_system="truecolor", force_terminal=True)
        self.size_of_it = (width, height)
        self.shown = Screen(width, height)
        self.spent = [0, 0]  # characters sent sparingly, and as Textual would have

    def _display(self, screen: Any, renderable: Any) -> None:
        if isinstance(renderable, LayoutUpdate | ChopsUpdate) and not self._batch_count:
            sparing = SparingUpdate(self.painted, renderable).render_segments(self.truecolor)
            self.shown.feed(sparing)
            in_full = renderable.render_segments(self.truecolor)
            self.spent = [self.spent[0] + len(sparing), self.spent[1] + len(in_full)]
        super()._display(screen, renderable)

    def truth(self) -> list[list[Any]]:
        """What a terminal shows after the whole screen was sent to it."""
        found = Screen(*self.size_of_it)
        update = self.screen._compositor.render_update(full=True, screen_stack=self._background_screens)
        assert isinstance(update, LayoutUpdate)
        found.feed(update.render_segments(self.truecolor))
        return found.cells


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_both_ways_make_the_same_picture(project: Path, size: tuple[int, int]) -> None:
    app = Watched(project, lambda: open_store(project), FakeHosting)
    app.start_watching(*size)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "tool_agent")
        for keys, shown in (
            (("enter",), "policy v15"),
            (("v",), "rejected"),
            (("i",), "Rewards"),
            (("question_mark",), "Keys"),
            (("escape",), "Rewards"),
            (("i",), "Health"),
            (("v", "v", "w", "l", "m"), "letters of"),
            (("escape", "up", "space"), "held"),
            (("escape", "escape"), "7 runs"),
        ):
            await pilot.press(*keys)
            await until_shown(pilot, app, shown)
            await pilot.pause()
            truth = app.truth()
            differ = [
                (y, x, app.shown.cells[y][x], truth[y][x])
                for y in range(size[1])
                for x in range(size[0])
                if app.shown.cells[y][x] != truth[y][x]
            ]
            assert differ == [], keys
    assert app.spent[0] < app.spent[1] / 3


def test_a_style_changes_by_what_differs() -> None:
    plain, red = parted("38;2;1;2;3;48;2;9;9;9"), parted("38;2;200;0;0;48;2;9;9;9")
    assert change(plain, red) == "\x1b[38;2;200;0;0m"
    assert change(red, parted("1;38;2;200;0;0;48;2;9;9;9")) == "\x1b[0;1;38;2;200;0;0;48;2;9;9;9m"
    assert change(red, parted("")) == "\x1b[39;49m"


def test_after_another_program_has_written_everything_is_sent_again() -> None:
    from textual.strip import Strip

    console, painted = Console(color_system="truecolor", force_terminal=True), Painted()
    update = LayoutUpdate([[Strip.blank(4)]], Region(0, 0, 4, 1))
    assert "    " in painted.write_layout(update, console)
    assert painted.write_layout(update, console) == ""
    painted.forget()
    assert "    " in painted.write_layout(update, console)
