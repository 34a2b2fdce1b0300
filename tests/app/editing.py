"""Ways to the Config screen and into its editor."""

from __future__ import annotations

from textual.pilot import Pilot

from loops_tui.app import LoopsApp
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.widgets.spans import SpanPane, SpanView, text_of
from tests.app.conftest import until, until_shown

NAMED = {
    " ": "space", "=": "equals_sign", "_": "underscore", '"': "quotation_mark", ".": "full_stop", "[": "left_square_bracket",
    "]": "right_square_bracket", "\n": "enter",
}  # fmt: skip


def keys(text: str) -> list[str]:
    return [NAMED.get(char, char) for char in text]


async def go(pilot: Pilot[int], app: LoopsApp) -> ConfigScreen:
    await until_shown(pilot, app, "› Runs")
    await pilot.press("2")
    await until(pilot, lambda: isinstance(app.screen, ConfigScreen), "the Config screen opens")
    screen = app.screen
    assert isinstance(screen, ConfigScreen)
    await until(pilot, lambda: screen._found is not None, "the configs are found")
    return screen


async def edit(pilot: Pilot[int], app: LoopsApp) -> tuple[ConfigScreen, ConfigEditor]:
    """Open the project's config and put the cursor into it."""
    screen = await go(pilot, app)
    await until(pilot, lambda: screen.document is not None, "the first config opens by itself")
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.focused, ConfigEditor), "the editor is in focus")
    await until(
        pilot, lambda: screen.document is not None and screen.document.linted is not None, "it is looked at"
    )
    assert screen.editor is not None
    return screen, screen.editor


def said(screen: ConfigScreen, pane: str) -> str:
    """What a pane says, without its line breaks."""
    found = screen.query_one(f"#{pane}")
    assert isinstance(found, SpanPane | SpanView)
    return " ".join(" ".join(text_of(line) for line in found.lines).split())
