"""Long acts beside the screen, on Loops say: carried out in a thread, told in the banner, ended by a toast."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from loops_tui.loops_ports import ActFailed, Told
from loops_tui.widgets.confirm import Tell
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp

TOLD_SECONDS = 10.0


class Acts:
    """One act at a time; a second one while the first lasts is not begun."""

    def __init__(self, app: LoopsApp) -> None:
        self._app = app
        self.under_way: str | None = None

    def begin(self, what: str, work: Callable[[Told], str]) -> None:
        """Carry out ``work`` in a thread; it returns a sentence for the toast, or raises ActFailed."""
        if self.under_way is not None:
            self._app.notify(f"first this has to end: {self.under_way}", severity="warning", markup=False)
            return
        self.under_way = what
        self._tell(f"{what} …")
        self._app.spawn(self._carry_out(what, work))

    async def _carry_out(self, what: str, work: Callable[[Told], str]) -> None:
        loop = asyncio.get_running_loop()

        def told(sentence: str) -> None:
            loop.call_soon_threadsafe(self._tell, sentence)

        try:
            said = await asyncio.to_thread(work, told)
        except ActFailed as error:
            self._app.push_screen(Tell(f"Not done: {what}", str(error).splitlines()))
        else:
            self._app.notify(safe(said, 600), title=what, timeout=TOLD_SECONDS, markup=False)
        finally:
            self.under_way = None
            self._app.notice = None
            self._app.poke()

    def _tell(self, sentence: str) -> None:
        if self.under_way is not None:
            self._app.notice = sentence
