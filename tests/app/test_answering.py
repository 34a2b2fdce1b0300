"""What a key does is shown at once and in one picture, and moves nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loops_tui.link import open_store
from loops_tui.screens import base
from loops_tui.screens.runs import RunsScreen
from tests.app.conftest import FakeHosting, make_app, open_run, until_shown
from tests.app.test_sparing import Watched


class Album(Watched):
    """An app that keeps every picture that its terminal has shown."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.pictures: list[str] = []

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        self.pictures.append(self.shown.text)


def cursor_row(picture: str) -> int:
    return next(y for y, line in enumerate(picture.splitlines()) if "▌" in line)


async def test_the_cursor_and_what_is_said_of_its_row_are_painted_together(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ANSWER_SECONDS", 60.0)  # this machine may be slow
    app = Album(project, lambda: open_store(project), FakeHosting)
    app.start_watching(120, 40)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "tool_agent")
        assert isinstance(app.screen, RunsScreen)
        first, second = (entry.run.run_id for entry in app.screen.table.items[:2])
        while first not in app.pictures[-1]:
            await pilot.pause()
        row = cursor_row(app.pictures[-1])
        app.pictures.clear()
        await pilot.press("down")
        while not any(second in picture for picture in app.pictures):
            await pilot.pause()
        for picture in app.pictures:
            assert (cursor_row(picture) != row) == (second in picture)


async def test_holding_the_view_lays_nothing_out_anew(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "Attempts of group")
        await pilot.wait_for_scheduled_animations()
        layouts: list[object] = []
        app.screen.screen_layout_refresh_signal.subscribe(app.screen, layouts.append)
        await pilot.press("space")
        await until_shown(pilot, app, "held still")
        assert layouts == []
