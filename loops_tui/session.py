"""An app on the terminal of this process, from its opening until the terminal is given back."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Sequence
from pathlib import Path

from loops_tui.app import LoopsApp
from loops_tui.options import Options
from loops_tui.terminal import NoLog, guarded_stdio, is_terminal, say, signal_handlers

SWITCH_SECONDS = 0.0005
"""How long another thread may keep the interpreter while the screen's waits for it. A key takes some five such turns from
the terminal to the screen and back, and a run in the engine's thread computes all the time: with Python's own 5 ms a
key would feel it."""
TURN_SECONDS = 0.01
"""How long the screen's thread may keep the interpreter while another waits for it. It computes for a few milliseconds and
then waits for long, so that the others lose little; were they let in at every half millisecond, a picture would take
twice as long."""


class FirstInTurn(selectors.DefaultSelector):
    """Waits for the events of a loop whose thread goes before all others of the process."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            return super().select(timeout)
        finally:
            sys.setswitchinterval(TURN_SECONDS)


def open_app(
    project_dir: Path,
    *,
    start: Path | None = None,
    overrides: Sequence[str] = (),
    options: Options | None = None,
) -> int:
    """Open the app on a project directory and return the exit status. ``start`` is a config to run at once."""
    from loops_tui.keymap import keymap_path, load_keymap
    from loops_tui.link import make_hosting, open_store
    from loops_tui.preferences import Preferences, preferences_path

    return run_app(
        LoopsApp(
            project_dir,
            lambda: open_store(project_dir),
            lambda: make_hosting(project_dir),
            start=start,
            overrides=overrides,
            options=options,
            preferences=Preferences(preferences_path()),
            keymap=load_keymap(keymap_path()),
        )
    )


def run_app(app: LoopsApp) -> int:
    """Run an app on the terminal of this process, and give the terminal back whatever happens."""
    if not is_terminal():
        say("loops-tui: this is no terminal; use `loops-tui runs`, `watch` and `run` here")
        return 2
    log_path = _log_path(app)
    try:
        with guarded_stdio(log_path):
            status = asyncio.run(_session(app), loop_factory=lambda: asyncio.SelectorEventLoop(FirstInTurn()))
    except NoLog as error:
        say(f"loops-tui: {error}")
        return 2
    if app.crash is not None:
        say(f"loops-tui: the app ended by an error of its own: {app.crash}")
        say(f"loops-tui: details are in {log_path}")
        return 1
    return status


def _log_path(app: LoopsApp) -> Path:
    """In the project's own directory, or with the user where the project is only looked at."""
    if not app.options.readonly:
        return app.project_dir / ".loops" / "app.log"
    from loops_tui.preferences import state_dir

    return state_dir() / "app.log"


async def _session(app: LoopsApp) -> int:
    loop = asyncio.get_running_loop()
    with signal_handlers(loop, app.leave_for_signal):
        status = await app.run_async(mouse=app.options.mouse)
        status = app.return_code or 0 if status is None else status
        # The screen is gone and the terminal restored; what still runs here ends now, told in plain lines.
        return await app.leaving.finish(status)
