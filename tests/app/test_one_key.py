"""Keys that come in one burst, as a slow line sends them, do what they do in the order in which they were pressed."""

from __future__ import annotations

from pathlib import Path

from textual.events import Key
from textual.widgets import Input, TextArea

from loops_tui.screens.help import HelpScreen
from loops_tui.screens.sandboxes import SandboxesScreen
from loops_tui.widgets.form import Field, Form
from tests.app.conftest import make_app, until, until_shown

LETTERS = {"enter": "\r", "backspace": "\x7f", "space": " "}


def burst(app: object, *keys: str) -> None:
    """All keys at once, before any of them is looked at."""
    for key in keys:
        app.post_message(Key(key, LETTERS.get(key, key if len(key) == 1 else None)))  # type: ignore[attr-defined]


async def test_a_letter_does_not_overtake_the_backspace_before_it(project: Path) -> None:
    app = make_app(project)
    async with app.run_test() as pilot:
        answers: list[dict[str, str] | None] = []
        await app.push_screen(Form("How many?", [], [Field("count", "count", "4")], "Take"), answers.append)
        await pilot.pause()
        assert isinstance(app.focused, Input)
        burst(app, "backspace", "6", "1", "backspace", "2", "enter")
        while not answers:
            await pilot.pause()
        assert answers == [{"count": "62"}]


async def test_text_that_is_edited_in_a_burst_is_what_was_typed(project: Path) -> None:
    app = make_app(project)
    async with app.run_test() as pilot:
        area = TextArea("")
        await app.screen.mount(area)
        area.focus()
        await pilot.pause()
        burst(app, "a", "x", "backspace", "b", "enter", "c", "home", "d", "up", "end", "e")
        await until(pilot, lambda: "e" in area.text, "the last key has arrived")
        assert area.text == "abe\ndc"


async def test_a_key_of_a_dialog_that_closes_goes_to_what_is_below(project: Path) -> None:
    app = make_app(project)
    async with app.run_test() as pilot:
        await pilot.pause()
        burst(app, "question_mark", "escape", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), "the keys are shown again")
        burst(app, "escape", "4")
        await until(pilot, lambda: isinstance(app.screen, SandboxesScreen), "the sandboxes are shown")


async def test_a_widget_that_goes_away_with_a_key_holds_no_other_one_up(project: Path) -> None:
    app = make_app(project)
    async with app.run_test() as pilot:

        class Vanishing(Input):
            async def _on_key(self, event: Key) -> None:
                event.stop()
                await self.remove()

        entry = Vanishing()
        await app.screen.mount(entry)
        entry.focus()
        await pilot.pause()
        burst(app, "x", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen), "the keys are shown")


async def test_what_is_typed_after_the_key_of_the_filter_goes_into_the_filter(project: Path) -> None:
    app = make_app(project)
    async with app.run_test() as pilot:
        await until_shown(pilot, app, "7 runs", "tool_agent")
        burst(
            app, "slash", "s", "A", "backspace", "x", "y", "backspace", "backspace", "enter", "question_mark"
        )
        await until(
            pilot, lambda: isinstance(app.screen, HelpScreen), "behind enter a key is the table's again"
        )
        await pilot.press("escape")
        await until_shown(pilot, app, "filter “s”")
