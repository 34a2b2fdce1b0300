"""The palette where something else than itself closes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.command import CommandList

from loops_tui.palette import ClosablePalette
from tests.app.conftest import make_app, open_run, until


async def test_a_palette_that_is_closed_before_it_is_there(empty_project: Path) -> None:
    app = make_app(empty_project)
    async with app.run_test() as pilot:
        await pilot.pause()
        app.action_command_palette()
        app.pop_screen()  # as when a run that was started shows its screen just now
        await pilot.pause()
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, ClosablePalette), "the palette opens again")
        await pilot.press("ctrl+p")  # a second one over it is not opened
        assert len(app.screen_stack) == 2
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the palette is gone")


async def test_a_palette_whose_parts_are_gone_while_it_looks_for_commands(empty_project: Path) -> None:
    app = make_app(empty_project)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p")
        palette = app.screen
        assert isinstance(palette, ClosablePalette)
        await until(pilot, lambda: palette.query_one(CommandList).option_count > 0, "commands are offered")
        await palette.query_children().remove()
        palette._list_visible = not palette._list_visible
        palette._show_busy = not palette._show_busy
        await pilot.pause()
        assert app.is_running


@pytest.mark.parametrize("size", [(2, 2), (4, 24), (5, 24)])
async def test_a_palette_that_has_no_room_for_its_list(empty_project: Path, size: tuple[int, int]) -> None:
    app = make_app(empty_project)
    async with app.run_test(size=size) as pilot:
        await pilot.press("ctrl+p")
        commands = app.screen.query_one(CommandList)
        await until(pilot, lambda: commands.option_count > 0, "commands are offered")
        await pilot.press("down", "pagedown", "pageup")
        assert app.is_running


async def test_a_command_of_a_screen_that_was_left_meanwhile(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        command = next(
            command for command in app.get_system_commands(app.screen) if command.title == "Beside"
        )
        await app.pop_screen()
        command.callback()
        await pilot.pause()
        assert app.is_running


async def test_two_clicks_beside_a_palette_take_away_that_alone(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        run = app.screen
        await pilot.press("ctrl+p")
        palette = app.screen
        palette.dismiss()
        palette.dismiss()
        await until(pilot, lambda: palette not in app._registry, "the palette is gone")
        assert app.screen is run
