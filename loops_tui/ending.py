"""How an app ends: what was begun beside its screens is stopped first, and only a defect ends it by an error."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from textual.app import ScreenStackError
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widget import MountError

from loops_tui.asking import AskingApp

log = logging.getLogger(__name__)

_GONE = (NoMatches, MountError, ScreenStackError)
"""What a screen meets that is taken apart while it works: its panes go before it does."""

OPENING_SECONDS = 5.0
"""How long a screen may take to open before one that was left meanwhile is taken apart all the same."""


class EndingApp[ResultT](AskingApp[ResultT]):
    """An app that can be left at any moment, also while a screen is being opened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Textual's app."""
        super().__init__(*args, **kwargs)
        self.crash: str | None = None
        """The last line of the error that ended the app; None: it was left."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._taken_apart = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the screens until the app ends. What it raises ends the app, like any other defect."""
        if self._taken_apart:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._handle_exception(error)

    async def _replace_screen(self, screen: Screen[Any]) -> Screen[Any]:
        """A screen that is left before it was there is taken apart once it is: while it opens it needs its panes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_SECONDS):
                await screen._mounted_event.wait()
        return await super()._replace_screen(screen)

    async def _close_all(self) -> None:
        """Textual takes the screens apart here, the innermost pane first."""
        self._taken_apart = True
        for task in self._tasks:
            task.cancel()
        await super()._close_all()

    def _handle_exception(self, error: Exception) -> None:
        if (self._taken_apart or self._exit) and isinstance(error, _GONE):
            log.debug("met while the screens were taken apart", exc_info=error)
            return
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """A defect of ours. Textual would print local variables, and keys of an account may be among them."""
        error = sys.exception() or self._exception
        lines = traceback.format_exception(error) if error is not None else ["unknown error\n"]
        log.critical("the app ended by an error\n%s", "".join(lines))
        last = lines[-1].strip()
        self.crash = last if len(last) < 300 else last[:299] + "…"
        self._close_messages_no_wait()
