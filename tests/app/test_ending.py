"""The app is left at any moment without an error of its own, also while a screen is being opened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Button, Static

from loops_tui.screens.checkpoints import CheckpointsScreen
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.run import RunScreen
from loops_tui.screens.sandboxes import SandboxesScreen
from loops_tui.widgets.confirm import Tell, confirm
from tests.app.conftest import LIVE, make_app, screen_text, until, until_shown


@pytest.mark.parametrize(
    ("key", "turns"), [("2", 4), ("2", 8), ("2", 25), ("3", 4), ("4", 4), ("5", 4)], ids=str
)
async def test_left_while_a_screen_opens(project: Path, key: str, turns: int) -> None:
    (project / "train.toml").write_text('recipe = "rl"\n')
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        app.simulate_key(key)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert app.crash is None


async def test_a_screen_that_is_left_before_it_is_there(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        asked = confirm("Release", "sandboxes", ["one"])
        for screen in (RunScreen(LIVE), SandboxesScreen(), CheckpointsScreen(), ConfigScreen(), asked):
            app.push_screen(screen)
            app.pop_screen()
            await until(pilot, lambda screen=screen: screen not in app._registry, "the screen is gone")
            assert app.crash is None
        await until_shown(pilot, app, "7 runs")


async def test_an_answer_given_twice_takes_away_the_question_alone(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        asked = confirm("Release", "sandboxes", ["one"])
        app.push_screen(SandboxesScreen())
        await app.push_screen(asked)
        below = app.screen_stack[:-1]
        for _ in range(2):
            asked.query_one("#choice-yes", Button).press()
        await until(pilot, lambda: asked not in app._registry, "the question is gone")
        assert app.screen_stack == below


async def test_left_while_a_config_is_about_to_be_opened(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()

        async def opens() -> None:
            await app.screen.mount(Static())

        app.exit()  # from here on nothing can be mounted, although no screen is taken apart yet
        app.spawn(opens())
        await asyncio.sleep(0)
    assert app.crash is None


async def test_a_defect_still_ends_the_app(project: Path) -> None:
    async def broken() -> None:
        raise ZeroDivisionError("a defect")

    app = make_app(project)

    async def lead() -> None:
        async with app.run_test() as pilot:
            app.spawn(broken())
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await lead()
    assert app.crash == "ZeroDivisionError: a defect"


async def test_a_second_failure_under_one_title_is_told_too(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        for words in ("the first failure", "the second failure"):
            app.push_screen(Tell("Not done: save", [words]))
            await pilot.pause()
            assert words in screen_text(app)
