"""What people ask of a running recipe: pause, resume, stop after this step, abort now.

Set from any thread (the host's command watch, a signal handler), awaited on the recipe's loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


class RunControl:
    """The wishes that hold now. Stop and abort are final; pause and resume alternate."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paused = False
        self._stopping = False
        self._aborted = False
        self._why = ""
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def paused(self) -> bool:
        """Whether new work should wait. A run that is stopping is never held by a pause."""
        return self._paused and not self._stopping and not self._aborted

    @property
    def stopping(self) -> bool:
        """Whether the run should end once the step in flight is done."""
        return self._stopping or self._aborted

    @property
    def aborted(self) -> bool:
        """Whether the run should end now, without training on what is in flight."""
        return self._aborted

    @property
    def why(self) -> str:
        """Who or what asked for the last change, for the log: "ctrl+c", "command", "SIGTERM"."""
        return self._why

    def pause(self, why: str = "") -> None:
        """Start nothing new; attempts in flight go on."""
        self._set("_paused", True, why)

    def resume(self, why: str = "") -> None:
        """End a pause."""
        self._set("_paused", False, why)

    def stop_after_step(self, why: str = "") -> None:
        """End the run after the step in flight."""
        self._set("_stopping", True, why)

    def abort(self, why: str = "") -> None:
        """End the run now."""
        self._set("_aborted", True, why)

    async def wait_if_paused(self) -> None:
        """Return at once, or when the pause ends, or when the run is to stop."""
        await self._until(lambda: not self.paused)

    async def wait_aborted(self) -> None:
        """Return when the run is to end now."""
        await self._until(lambda: self._aborted)

    async def wait_changed(self, seen: tuple[bool, bool, bool]) -> tuple[bool, bool, bool]:
        """Return (paused, stopping, aborted) as soon as it differs from ``seen``."""
        await self._until(lambda: self.wishes != seen)
        return self.wishes

    @property
    def wishes(self) -> tuple[bool, bool, bool]:
        """(paused, stopping, aborted)."""
        return self.paused, self.stopping, self.aborted

    def _set(self, name: str, value: bool, why: str) -> None:
        with self._lock:
            setattr(self, name, value)
            self._why = why
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def _until(self, true: Callable[[], bool]) -> None:
        while True:
            event = asyncio.Event()
            with self._lock:
                if true():
                    return
                self._waiters.append((asyncio.get_running_loop(), event))
            await event.wait()
