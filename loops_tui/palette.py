"""The command palette: everything that a key does here, found by name, and the themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.app import SystemCommand
from textual.binding import ActiveBinding
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.events import Mount
from textual.screen import Screen
from textual.theme import ThemeProvider
from textual.widgets import Input

from loops_tui.widgets.left_once import LeftOnce

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp

_MOVES = ("table.", "list.", "view.", "pane.", "form.", "filter.", "ask.")
"""Keys of parts that screens share: they move, and a palette that has been opened has nothing to move in."""


def palette_commands(app: LoopsApp, screen: Screen[object]) -> Iterator[SystemCommand]:
    """What can be done on this screen and in the app right now, each once."""
    seen: set[str] = set()
    for active in screen.active_bindings.values():
        binding = active.binding
        if not active.enabled or not binding.id or binding.id.startswith(_MOVES) or binding.action in seen:
            continue
        seen.add(binding.action)
        if binding.action != "command_palette":
            yield SystemCommand(binding.description, binding.tooltip, _runner(app, screen, active))
    yield SystemCommand("Theme", "Choose the colours", lambda: _choose_theme(app))


def _runner(app: LoopsApp, screen: Screen[object], active: ActiveBinding) -> Callable[[], None]:
    async def run() -> None:
        # A screen that was left while the palette was open does nothing any more.
        if active.node is app or screen in app.screen_stack:
            await app.run_action(active.binding.action, active.node)

    def run_later() -> None:
        app.call_later(run)

    return run_later


class ClosablePalette(CommandPalette, LeftOnce[None]):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Textual's, which ended the app where it was closed by anything but itself (a run that has started shows its
    screen): before it was there, or while it still looked for commands; and by a page up or down where it had no room
    for its list."""

    DEFAULT_CSS = (
        "ClosablePalette CommandList { min-width: 8; }"  # a command's padding alone takes four cells
    )

    def _on_mount(self, event: Mount) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if len(self.app.screen_stack) < 2:  # closed already: there is nothing below it
            event.prevent_default()
        self.query_one(Input).max_length = 200  # each key compares it with every command, and draws it anew

    def _watch__list_visible(self) -> None:
        with suppress(NoMatches):
            super()._watch__list_visible()

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # a list without room is not laid out: there are no pages in it
            super()._action_command_list(action)

    async def _watch__show_busy(self) -> None:
        with suppress(NoMatches):
            await super()._watch__show_busy()


def _choose_theme(app: LoopsApp) -> None:
    """As Textual does in a palette of its own."""
    app.push_screen(ClosablePalette(providers=[ThemeProvider], placeholder="Search for themes…"))


def open_palette(app: LoopsApp) -> None:
    """As Textual opens its own."""
    if not isinstance(app.screen, CommandPalette):
        app.push_screen(ClosablePalette(id="--command-palette"))
