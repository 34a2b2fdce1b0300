"""How the app is left: what happens to a run that lives in it, and what the person is told meanwhile."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING

from loops_tui.options import OnHangup
from loops_tui.ports import HandOverFailed
from loops_tui.terminal import say
from loops_tui.widgets.confirm import Ask, Choice, Tell

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.25
HAND_OVER_SECONDS = 3600.0  # in view, where a person can see how long the step takes and think better of it
DRAIN_SECONDS = 600.0  # a step that has not ended by then is aborted
HANGUP_SECONDS = 120.0  # for the step in hand where the terminal has closed and the run is to go on elsewhere
SIGNAL_DRAIN_SECONDS = 20.0  # the same where a signal ends the app: whoever sent it will not wait for long
ABORT_SECONDS = 60.0  # for releasing what a run holds


class Leaving:
    """The app's way out. Signals end the screen at once; keys drain or hand over in view."""

    def __init__(self, app: LoopsApp) -> None:
        self._app = app
        self._under_way = False
        self._forced = False
        self._signal: int | None = None
        self._moving: asyncio.Future[list[str | None]] | None = None
        self._handed_over: list[str] = []

    # -- from within the app -----------------------------------------------------------------------------------

    def ask(self) -> None:
        """Leave, or ask: about texts that are not saved, then where a run lives here."""
        self._app.settle_unsaved(self._ask_about_runs)

    def _ask_about_runs(self) -> None:
        hosted = self._app.hosted()
        if not hosted:
            self._app.exit(0)
            return
        one = len(hosted) == 1
        it = "it" if one else "them"
        choices = [Choice("stay", "Stay", "escape")]
        if self._app.hosting.can_hand_over:
            its = "a process of its own" if one else "processes of their own"
            choices.append(Choice("detach", f"Leave {it} running, in {its}", "d"))
        choices.append(Choice("stop", f"Stop {it} after this step, then leave", "s", grave=True))
        choices.append(Choice("abort", f"Abort {it} now, then leave", "a", grave=True))
        title = "A run lives in this app" if one else f"{len(hosted)} runs live in this app"
        self._app.push_screen(Ask(title, [f"  {name}" for name in hosted], choices), self._chosen)

    def _chosen(self, choice: str | None) -> None:
        if choice == "detach":
            self._hand_over()
        elif choice == "stop":
            self._drain(0)
        elif choice == "abort":
            self._drain(0)
            self._force()

    def interrupt(self) -> None:
        """ctrl+c: first drain and say so, then ask whether to force."""
        if not self._app.hosted():
            if self._app.screen.is_modal:  # pressed again, or in a dialog: out
                self._app.exit(128 + signal.SIGINT)
            else:
                self._app.settle_unsaved(lambda: self._app.exit(128 + signal.SIGINT))
        elif not self._under_way:
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
        self._under_way = True
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

    # -- handing over ------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        self._under_way = True
        self._app.notice = "handing over: the step in hand is finished and saved first; ctrl+c to abort"
        self._app.spawn(self._hand_over_in_view(self._app.hosted()))

    async def _hand_over_in_view(self, runs: list[str]) -> None:
        began = time.monotonic()
        moving = self._move(runs, HAND_OVER_SECONDS)
        while not moving.done():
            await asyncio.wait([moving], timeout=1.0)
            if not (moving.done() or self._forced):
                where = (
                    "finishing and saving the step in hand" if self._app.hosted() else "starting it elsewhere"
                )
                self._app.notice = f"handing over: {where}, {time.monotonic() - began:.0f} s; ctrl+c to abort"
        kept = [sentence for sentence in moving.result() if sentence is not None]
        self._under_way = False
        if not kept or (self._forced and not self._app.hosted()):
            self._app.exit(128 + signal.SIGINT if self._forced else 0)
            return
        self._app.notice = None
        left = self._app.hosted()
        ending = f"Still here: {', '.join(left)}" if left else "No run lives here any more; `q` leaves."
        self._app.push_screen(Tell("Not handed over", [*kept, "", ending]))

    def _move(self, runs: list[str], seconds: float) -> asyncio.Future[list[str | None]]:
        """Move these runs at the same time. One that is under way already goes on as it is."""
        if self._moving is None or self._moving.done():
            self._moving = asyncio.gather(*(self._moved(run_id, seconds) for run_id in runs))
        return self._moving

    async def _moved(self, run_id: str, seconds: float) -> str | None:
        """Move one run; the reason where it could not be."""
        try:
            await asyncio.to_thread(self._app.hosting.hand_over, run_id, seconds)
        except HandOverFailed as error:
            log.error("%s was not handed over: %s", run_id, error)
            return str(error)
        self._handed_over.append(run_id)
        return None

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
        if hosted and self._signal == signal.SIGHUP and self._app.options.on_hangup is OnHangup.HAND_OVER:
            hosted = await self._hand_over_unseen(hosted)
        if hosted:
            await self._drain_outside(hosted)
        for run_id in self._handed_over:
            say(f"{run_id} goes on in a process of its own: `loops-tui watch {run_id}`")
        await asyncio.to_thread(self._app.close_hosting)
        return status

    async def _hand_over_unseen(self, runs: list[str]) -> list[str]:
        """The terminal is gone: let the runs go on elsewhere. Returns those that still live here."""
        if self._app.hosting.can_hand_over:
            moving = self._move(runs, HANGUP_SECONDS)
            end = time.monotonic() + HANGUP_SECONDS
            # Starting the other process is not cut off: it has taken the run over, or says why not.
            while not moving.done() and not (self._app.hosted() and (self._forced or time.monotonic() > end)):
                await asyncio.wait([moving], timeout=WATCH_SECONDS)
        return self._app.hosted()

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
