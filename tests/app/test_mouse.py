"""A click lands on what is under the pointer."""

from __future__ import annotations

from pathlib import Path

import pytest

from loops_tui.screens.runs import RunsScreen
from loops_tui.widgets.virtual_table import VirtualTable
from tests.app.conftest import SIZES, make_app, screen_text, until, until_shown


@pytest.mark.parametrize("size", SIZES)
async def test_a_click_on_a_row_chooses_that_row(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "7 runs")
        table = app.screen.query_one("#runs", VirtualTable)
        lines = screen_text(app).splitlines()
        for state, row in (("aborted", 5), ("failed", 2)):
            y = next(number for number, line in enumerate(lines) if state in line)
            await pilot.click(offset=(20, y))
            await until(
                pilot,
                lambda row=row: table.cursor_key == table.items[row].run.run_id,
                f"the {state} run is under the cursor",
            )
        assert isinstance(app.screen, RunsScreen)


async def test_a_click_on_the_frame_chooses_nothing(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        table = app.screen.query_one("#runs", VirtualTable)
        await pilot.press("down")
        chosen = table.cursor_key
        for y in (table.region.y, table.region.y + 1):  # its border, its titles
            await pilot.click(offset=(20, y))
        await pilot.pause()
        assert table.cursor_key == chosen


async def test_a_click_on_the_line_of_keys_presses_the_key(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        x = screen_text(app).splitlines()[-1].index("Help")
        await pilot.click(offset=(x, 39))
        await until_shown(pilot, app, "esc closes")
