"""Every key has an id and words, the help is made from them, and no key breaks anything anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.binding import Binding

from loops_tui.app import LoopsApp
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.config_diff import DiffScreen
from loops_tui.screens.config_editor import ConfigEditor
from loops_tui.screens.config_picker import Picker
from loops_tui.screens.help import HelpScreen, help_lines
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.sandboxes import SandboxesScreen
from loops_tui.screens.transcript import TranscriptScreen
from loops_tui.widgets.confirm import Ask
from loops_tui.widgets.entry_list import EntryList
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import SpanView, text_of, width_of
from loops_tui.widgets.virtual_table import VirtualTable
from tests.app.conftest import LIVE, SIZES, make_app, open_run, screen_text, until, until_shown

OWNERS = (
    LoopsApp,
    RunsScreen,
    RunScreen,
    TranscriptScreen,
    SandboxesScreen,
    ConfigScreen,
    ConfigEditor,
    DiffScreen,
    EntryList,
    HelpScreen,
    Picker,
    Ask,
    FilterLine,
    SearchView,
    VirtualTable,
)
KEYS = [
    "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "enter", "escape", "tab", "shift+tab", "space",
    "slash", "escape", "left_square_bracket", "right_square_bracket", "left_curly_bracket", "right_curly_bracket",
    "full_stop", "comma", "1", "2", "f8", "f3", "escape", "f4", "f2", "f9", "escape", "3", "4", "c", "escape", "a", "space", "d", "escape", "escape", "n", "p", "t", "y", "v", "f", "P", "escape", "s", "escape", "A", "escape", "j", "k",
    "g", "G", "b", "J", "K", "ctrl+p", "escape", "question_mark", "escape", "f5", "delete", "ctrl+r", "d", "D",
]  # fmt: skip


@pytest.mark.parametrize("owner", OWNERS)
def test_every_binding_has_an_id_and_a_tooltip(owner: type) -> None:
    for binding in owner.BINDINGS:
        assert isinstance(binding, Binding)
        assert binding.id, binding
        assert binding.tooltip, binding


def test_ids_are_unique() -> None:
    own = [str(binding.id) for owner in OWNERS for binding in owner.__dict__.get("BINDINGS", [])]
    assert len(own) == len(set(own))


@pytest.mark.parametrize(
    ("where", "size"),
    [
        ("runs", (80, 24)),
        ("run", (80, 24)),
        ("run", (120, 40)),
        ("transcript", (80, 24)),
        ("config", (80, 24)),
        ("config", (120, 40)),
    ],
)
async def test_any_key_anywhere_does_no_harm(
    project: Path, where: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        if where in ("runs", "config"):
            await until_shown(pilot, app, "7 runs")
        else:
            await open_run(pilot, app)
        if where == "config":
            await pilot.press("2")
            await until_shown(pilot, app, "Bundled examples")
        if where == "transcript":
            app.push_screen(TranscriptScreen(LIVE, "tool_agent", 123, 1))
            await until_shown(pilot, app, "Sort names.txt")
        for key in KEYS:
            await pilot.press(key)
        await pilot.pause()
        assert app.is_running


@pytest.mark.parametrize("size", SIZES)
async def test_the_line_of_keys_shows_whole_entries_only(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        bar = app.screen.query_one(KeyBar)
        line = bar.lines[0]
        assert width_of(line) <= size[0]
        assert text_of(line).rstrip().endswith("? Help")
        assert "…" not in text_of(line)


@pytest.mark.parametrize("size", SIZES)
async def test_help_is_made_from_the_bindings(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        await pilot.press("question_mark")
        await until_shown(pilot, app, "Keys", "Hold the view still")
        sheet = [text_of(line) for line in app.screen.query_one(SpanView).lines]
        assert any("End the run after the step in hand" in line for line in sheet)
        assert sheet[0].strip() == "Run", "the screen's own keys come first"
        await pilot.press("end")
        await until_shown(pilot, app, "Everywhere", "All keys of this screen")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the help closes")


async def test_help_names_each_key_by_itself(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        app.push_screen(TranscriptScreen(LIVE, "tool_agent", 123, 1))
        await until_shown(pilot, app, "Sort names.txt")
        await pilot.press("slash", *"ERROR")
        await until_shown(pilot, app, "match 1 of")
        await pilot.press("enter")
        shown = {" ".join(text_of(line).split()) for line in help_lines(app.screen)}
        assert {"} J The next turn", "{ K The turn before"} <= shown
        assert {". The next match", ", The match before"} <= shown
        assert "/ Find a text in it" in shown
        assert not any("bracket" in line for line in shown)


async def test_the_palette_offers_what_keys_do_here(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_run(pilot, app)
        await pilot.press("ctrl+p")
        await pilot.press(*"hold")
        await until_shown(pilot, app, "Hold view")
        await pilot.press("down", "enter")
        await until_shown(pilot, app, "held still")


async def test_themes_of_the_terminal_s_own_colours(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_run(pilot, app)
        for theme in ("ansi-dark", "ansi-light", "loops-day", "nord", "loops-night"):
            app.theme = theme
            await pilot.pause()
            assert "● running" in screen_text(app)
