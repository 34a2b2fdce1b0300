"""The terminal application: one project directory, its runs, and whatever runs in this process.

Three things run side by side and meet only in the store: the screen's loop (this module), the feed's reading thread,
and the engine with a thread and a loop of its own. Nothing heavy is imported before the first paint.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.actions import ActionParseResult
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.dom import DOMNode
from textual.reactive import var
from textual.screen import Screen

from loops_tui.acts import Acts
from loops_tui.cleaning import Cleaning
from loops_tui.ending import EndingApp
from loops_tui.feed import Feed
from loops_tui.glyphs import ascii_driver
from loops_tui.keys import APP_BINDINGS
from loops_tui.leaving import Leaving
from loops_tui.options import Options
from loops_tui.palette import open_palette, palette_commands
from loops_tui.ports import Hosting, StartRefused
from loops_tui.preferences import Preferences, state_dir
from loops_tui.readonly import CHANGES, REFUSAL, NoHosting, name_of, open_to_read
from loops_tui.screens.base import FedScreen
from loops_tui.theme import NIGHT, THEMES, Palette
from loops_tui.widgets.confirm import Tell
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from engine.store.store import Store
    from loops_tui.keymap import Keymap
    from loops_tui.screens.config import ConfigScreen

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
TERMINAL_WATCH_SECONDS = 5.0
THEME_VARIABLE = "LOOPS_TUI_THEME"
SETTLED_SECONDS = (3.0, 15.0, 60.0)
"""When what the engine has loaded for a run is set apart from the garbage collector. It stays for good, and walking over
it every few seconds took a tenth of one each time, in which no key was heard."""
_NOT_IN_DIALOGS = ("go_", "leave", "help")


class LoopsApp(EndingApp[int]):
    """The app. ``hosting`` is made on first use: importing the engine takes longer than painting."""

    # All sheets at once: the first screen is made before Textual would look for one of its own.
    CSS_PATH = [HERE / "app.tcss", *sorted((HERE / "screens").glob("*.tcss"))]  # noqa: RUF012  # an instance's
    TITLE = "loops-tui"
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar[list[BindingType]] = APP_BINDINGS

    notice: var[str | None] = var(None)

    def __init__(
        self,
        project_dir: Path,
        open_store: Callable[[], Store],
        make_hosting: Callable[[], Hosting],
        *,
        start: Path | None = None,
        overrides: Sequence[str] = (),
        options: Options | None = None,
        preferences: Preferences | None = None,
        keymap: Keymap | None = None,
    ) -> None:
        """``options`` and ``keymap`` None: as they come; ``preferences`` None: nothing is remembered."""
        self.options = options or Options()
        colourless = "NO_COLOR" in os.environ  # Textual takes it out of there
        super().__init__(
            ansi_color=True if colourless else None,
            driver_class=ascii_driver(self.get_driver_class()) if self.options.ascii else None,
        )
        self.preferences = preferences or Preferences()
        self.project_dir = project_dir
        self.run_in_hand: str | None = None  # the run looked at last
        self.newest_run: str | None = None  # what stands for it until one was; a live one where there is one
        self.leaving = Leaving(self)
        self._cleaning = Cleaning(self)
        self.acts = Acts(self)
        self._config: ConfigScreen | None = None
        self._make_hosting = NoHosting if self.options.readonly else make_hosting
        self._hosting: Hosting | None = None
        self._start = start
        self._overrides = tuple(overrides)
        self.feed = Feed(
            (lambda: open_to_read(project_dir)) if self.options.readonly else open_store, self.fed_screen
        )
        for theme in THEMES:
            self.register_theme(theme)
        usual = "ansi-dark" if colourless else NIGHT.name
        wanted = os.environ.get(THEME_VARIABLE) or self.preferences.get("theme", usual)
        self.theme = wanted if wanted in self.available_themes else usual
        self.palette = self._mixed()
        self.keymap = keymap
        if keymap is not None:
            self.set_keymap(keymap.for_textual)

    # -- life --------------------------------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        from loops_tui.screens.runs import RunsScreen

        return RunsScreen()

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self.set_interval(TERMINAL_WATCH_SECONDS, self._watch_terminal)
        self.spawn(self.feed.run())
        for problem in self.keymap.problems if self.keymap is not None else ():
            self.notify(safe(problem, 400), title="Keymap", severity="warning", timeout=12.0, markup=False)
        if not self.options.readonly and (self.project_dir / ".loops" / "drafts").is_dir():
            self.call_after_refresh(self._tell_unsaved)
        if self._start is not None:
            # After the first paint: from here on the engine may import what it likes, in its own thread.
            self.call_after_refresh(self.start_run, self._start, self._overrides)

    def on_unmount(self) -> None:
        self.feed.close()

    def _watch_terminal(self) -> None:
        """A terminal that is gone without a hangup signal must not leave this process behind."""
        gone = sys.__stdin__ is None or not sys.__stdin__.isatty()
        if gone and self._driver is not None and not self.is_headless:
            self.leave_for_signal(signal.SIGHUP)

    def leave_for_signal(self, number: int) -> None:
        """End the screen at once; what runs here is drained once the terminal is restored."""
        self.leaving.by_signal(number)

    # -- theme -------------------------------------------------------------------------------------------------

    def _mixed(self) -> Palette:
        theme = self.current_theme
        variables = {**theme.to_color_system().generate(), **theme.variables}
        return Palette(theme, variables, plain=self.no_color)

    def _repaint(self) -> None:
        self.palette = self._mixed()
        self.preferences.set("theme", self.theme)
        for screen in self.screen_stack:
            for widget in screen.walk_children():
                widget.refresh()

    @property
    def copies_dir(self) -> Path:
        """Where texts go that are saved or too long for a clipboard: with the user where the project is only read."""
        return state_dir() if self.options.readonly else self.project_dir / ".loops"

    # -- what screens ask for ----------------------------------------------------------------------------------

    def fed_screen(self) -> FedScreen | None:
        """The screen in view, or the one that shows behind a dialog."""
        if not self._running:
            return None
        for screen in reversed(self.screen_stack):
            if isinstance(screen, FedScreen):
                return screen if screen.is_mounted else None
            if not screen.is_modal:
                return None
        return None

    def poke(self) -> None:
        self.feed.poke()

    def watch_notice(self) -> None:
        screen = self.fed_screen() if self._running else None
        if screen is not None and screen.is_mounted:
            screen.update_banner()

    @property
    def hosting(self) -> Hosting:
        if self._hosting is None:
            self._hosting = self._make_hosting()
        return self._hosting

    def hosted(self) -> list[str]:
        """Runs that live in this process."""
        return [] if self._hosting is None else list(self._hosting.live())

    def close_hosting(self) -> None:
        if self._hosting is not None:
            self._hosting.close()

    def start_run(self, config: Path, overrides: Sequence[str] = ()) -> None:
        """Start a run in this process and open its screen."""
        chosen = tuple(overrides)
        self.notice = f"starting {config.name}: loading the engine, then checking the config …"
        self.spawn(self._begin_run(lambda: self.hosting.start(config, chosen), "The run was not started"))

    def resume_run(self, run_id: str, overrides: Sequence[str] = ()) -> None:
        """Go on in this process with a run that has ended, and open its screen."""
        chosen = tuple(overrides)
        self.notice = f"resuming {run_id}: loading the engine, then checking the config …"
        self.spawn(self._begin_run(lambda: self.hosting.resume(run_id, chosen), "The run was not resumed"))

    async def _begin_run(self, begin: Callable[[], str], refused: str) -> None:
        try:
            run_id = await asyncio.to_thread(begin)
        except StartRefused as error:
            self.notice = None
            self.push_screen(Tell(refused, [str(error), *error.details]))
            return
        self.notice = None
        self.open_run(run_id)
        for seconds in SETTLED_SECONDS:
            self.set_timer(seconds, gc.freeze)

    def ask_of_run(self, run_id: str, kind: str) -> None:
        """Write a command for a run's host, wherever it lives."""
        self.spawn(self._ask_of_run(run_id, kind))

    async def _ask_of_run(self, run_id: str, kind: str) -> None:
        from engine.store.errors import StoreError

        try:
            await self.feed.call(lambda store: store.request(run_id, kind))
        except StoreError as error:
            self.notify(str(error), title="Not asked", severity="error", markup=False)
            return
        self.poke()

    @property
    def cleaning(self) -> bool:
        """Whether sandboxes are being released right now."""
        return self._cleaning.under_way

    def clean_up(self, names: Sequence[str], *, force: bool = False) -> None:
        """Release these sandboxes in the engine's thread and tell how it went."""
        self._cleaning.begin(names, force=force)

    # -- actions -----------------------------------------------------------------------------------------------

    def open_run(self, run_id: str) -> None:
        from loops_tui.screens.run import RunScreen

        self.run_in_hand = run_id
        for screen in self.screen_stack:
            if isinstance(screen, RunScreen) and screen.run_id == run_id:
                while self.screen is not screen:
                    self.pop_screen()
                return
        self._back_to_runs()
        self.push_screen(RunScreen(run_id))

    def _back_to_runs(self) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_go_runs(self) -> None:
        self._back_to_runs()

    def action_go_run(self) -> None:
        if run_id := self.run_in_hand or self.newest_run:
            self.open_run(run_id)

    def action_go_config(self) -> None:
        """The one Config screen of this app: it stays as it is left, with what was typed on it."""
        from loops_tui.screens.config import ConfigScreen

        if self._config is None:
            self._config = ConfigScreen()
            self.install_screen(self._config, "config")
        if self._config not in self.screen_stack:
            self.push_screen(self._config)
        while self.screen is not self._config:
            self.pop_screen()

    def _tell_unsaved(self) -> None:
        from loops_tui.screens.config_leave import tell_left

        self.spawn(tell_left(self))

    def settle_unsaved(self, then: Callable[[], None]) -> None:
        """Go on with ``then`` once it is settled what becomes of texts that are not saved."""
        if self._config is None:
            then()
            return
        from loops_tui.screens.config_leave import settle_unsaved

        settle_unsaved(self, self._config.desk, then)

    def action_go_sandboxes(self) -> None:
        from loops_tui.screens.sandboxes import SandboxesScreen

        self._go_to(SandboxesScreen)

    def action_go_search(self) -> None:
        from loops_tui.screens.search import SearchScreen

        if not isinstance(self.screen, SearchScreen):
            self.push_screen(SearchScreen(getattr(self.screen, "run_id", None)))

    def action_go_checkpoints(self) -> None:
        from loops_tui.screens.checkpoints import CheckpointsScreen

        self._go_to(CheckpointsScreen)

    def _go_to(self, kind: type[FedScreen]) -> None:
        """Show the one screen of this kind: the one that is open already, or a new one."""
        if any(isinstance(screen, kind) for screen in self.screen_stack):
            while not isinstance(self.screen, kind):
                self.pop_screen()
            return
        self.push_screen(kind())

    def action_leave(self) -> None:
        self.leaving.ask()

    def action_interrupt(self) -> None:
        if self.screen.get_selected_text():
            self.screen.action_copy_text()
            return
        if self.focused is not None and getattr(self.focused, "selected_text", ""):
            self.call_later(self.focused.run_action, "copy")  # an editor's selection is its own
            return
        self.leaving.interrupt()

    async def action_quit(self) -> None:
        self.leaving.ask()

    def action_command_palette(self) -> None:
        open_palette(self)

    def action_help(self) -> None:
        from loops_tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen, None if self.keymap is None else self.keymap.changes))

    def may(self, action: str) -> bool:
        """Whether an action (its name, as in ``action_<name>``) is allowed at all: the one gate of ``--readonly``."""
        return not (self.options.readonly and action in CHANGES)

    def _check_action_state(self, action: str, default_namespace: DOMNode) -> bool | None:
        # Every line of keys, help and palette asks here, whichever widget the action belongs to.
        return self.may(name_of(action)) and super()._check_action_state(action, default_namespace)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        if not self.may(name_of(action)):
            self.notify(REFUSAL, severity="warning", markup=False)
            return False
        return await super().run_action(action, default_namespace, namespaces)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "go_run":
            return (self.run_in_hand or self.newest_run) is not None
        # A dialog takes no other keys than its own.
        if self._running and self.screen.is_modal and action.startswith(_NOT_IN_DIALOGS):
            return False
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        return palette_commands(self, screen)
