"""How the app is left: what happens to a run that lives in it, and what the person is told meanwhile."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

from loops_tui.terminal import say
from loops_tui.widgets.confirm import Ask, Choice

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp

WATCH_SECONDS = 0.25
DRAIN_SECONDS = 600.0  # a step that has not ended by then is aborted
SIGNAL_DRAIN_SECONDS = 20.0  # the same where a signal ends the app: whoever sent it will not wait for long
ABORT_SECONDS = 60.0  # for releasing what a run holds


class Leaving:
    """The app's way out. Signals end the screen at once; keys drain in view."""

    def __init__(self, app: LoopsApp) -> None:
        self._app = app
        self._draining = False
        self._forced = False
        self._signal: int | None = None

    # -- from within the app -----------------------------------------------------------------------------------

    def ask(self) -> None:
        """Leave, or ask first: about texts that are not saved, and where a run lives here."""
        self._app.settle_unsaved(self._ask_about_runs)

    def _ask_about_runs(self) -> None:
        hosted = self._app.hosted()
        if not hosted:
            self._app.exit(0)
            return
        count = "A run lives" if len(hosted) == 1 else f"{len(hosted)} runs live"
        choices = [Choice("stay", "Stay", "escape")]
        if self._app.hosting.can_hand_over:
            choices.append(Choice("detach", "Leave, let it go on in a process of its own", "d"))
        choices.append(Choice("stop", "Stop it after this step, then leave", "s", grave=True))
        choices.append(Choice("abort", "Abort it now, then leave", "a", grave=True))
        self._app.push_screen(
            Ask(f"{count} in this app", [f"  {name}" for name in hosted], choices), self._chosen
        )

    def _chosen(self, choice: str | None) -> None:
        if choice == "stop":
            self._drain(0)
        elif choice == "abort":
            self._drain(0)
            self._force()

    def interrupt(self) -> None:
        """ctrl+c: first drain and say so, then ask whether to force."""
        if not self._app.hosted():
            leave = partial(self._app.exit, 128 + signal.SIGINT)
            # A second ctrl+c leaves whatever is asked; what was typed is restored when the app is opened again.
            if self._app.screen.is_modal:
                leave()
            else:
                self._app.settle_unsaved(leave)
        elif not self._draining:
            self._drain(128 + signal.SIGINT)
        elif not self._forced and not self._app.screen.is_modal:
            self._app.push_screen(
                Ask(
                    "Abort now?",
                    ["The step in hand is lost; sandboxes are released all the same."],
                    [Choice("wait", "Keep waiting", "escape"), Choice("force", "Abort now", "y", grave=True)],
                ),
                lambda choice: self._force() if choice == "force" else None,
            )

    def _drain(self, status: int) -> None:
        self._draining = True
        self._app.notice = "stopping after this step, then leaving; ctrl+c again to abort"
        self._app.spawn(self._drain_in_view(status))

    async def _drain_in_view(self, status: int) -> None:
        hosting = self._app.hosting
        await asyncio.to_thread(hosting.stop)
        while self._app.hosted():
            await asyncio.to_thread(hosting.wait, WATCH_SECONDS)
        self._app.exit(status)

    def _force(self) -> None:
        self._forced = True
        self._app.notice = "aborting, releasing what the run holds …"
        self._app.spawn(asyncio.to_thread(self._app.hosting.abort))

    # -- from outside ------------------------------------------------------------------------------------------

    def by_signal(self, number: int) -> None:
        """A signal: the terminal is given back first. A second one stops waiting for the step."""
        if self._signal is not None:
            self._forced = True
            return
        self._signal = number
        self._app.exit(128 + number)

    async def finish(self, status: int) -> int:
        """After the screen: end what still runs here, within bounds."""
        hosted = self._app.hosted()
        if hosted:
            await self._drain_outside(hosted)
        await asyncio.to_thread(self._app.close_hosting)
        return status

    async def _drain_outside(self, hosted: list[str]) -> None:
        hosting = self._app.hosting
        tell = self._signal != signal.SIGHUP
        if tell:
            say(
                f"stopping {', '.join(hosted)} after the step in hand (at most {SIGNAL_DRAIN_SECONDS:.0f} s) …"
            )
        limit = SIGNAL_DRAIN_SECONDS if self._signal is not None else DRAIN_SECONDS
        await asyncio.to_thread(hosting.stop)
        if not await self._wait(limit, until_forced=True):
            if tell:
                say("aborting, releasing what the run holds …")
            await asyncio.to_thread(hosting.abort)
            await self._wait(ABORT_SECONDS, until_forced=False)
        left = self._app.hosted()
        if tell:
            say(f"still not ended: {', '.join(left)}" if left else "stopped")

    async def _wait(self, seconds: float, *, until_forced: bool) -> bool:
        waited = 0.0
        while waited < seconds and not (until_forced and self._forced):
            if await asyncio.to_thread(self._app.hosting.wait, WATCH_SECONDS):
                return True
            waited += WATCH_SECONDS
        return not self._app.hosted()
