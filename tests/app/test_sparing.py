"""What is sent to a terminal as differences makes the same picture as everything sent in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region

from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from loops_tui.sparing import Painted, SparingUpdate, change, parted
from tests.app.conftest import FakeHosting, until_shown
from tests.terminal.picture import Picture


class Watched(LoopsApp):
    """An app whose updates go to such a terminal too."""

    def start_watching(self, width: int, height: int) -> None:
        self.truecolor = Console(color_system="truecolor", force_terminal=True)
        self.size_of_it = (width, height)
        self.shown = Picture(width, height)
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
        found = Picture(*self.size_of_it)
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
