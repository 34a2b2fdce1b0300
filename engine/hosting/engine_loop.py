"""The engine's own event loop: one for each process, in a thread of its own.

Everything that talks to Loops or to a sandbox provider runs here, because both SDKs break when two loops share their
clients, and because a busy engine must not hold up the screen's loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from engine.hosting.errors import HostingError

log = logging.getLogger(__name__)

START_SECONDS = 10.0


class EngineLoop:
    """A loop in a thread. ``start`` it, ``submit`` coroutines from any thread, ``close`` it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Start the thread if it is not running yet. Raises HostingError after ``close``."""
        with self._lock:
            if self._closed:
                raise HostingError("the engine's loop has been closed")
            if self._thread is not None:
                return
            ready = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(ready,), name="engine", daemon=True)
            self._thread.start()
            if not ready.wait(START_SECONDS):
                raise HostingError("the engine's loop did not start")

    def submit[T](self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the engine's loop, starting it if need be. The future may be cancelled.

        Where the work calls ``sys.exit()``, the future fails with HostingError: it must not end whoever waits for it.
        """
        try:
            self.start()
        except HostingError:
            work.close()
            raise
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(_contained(work), self._loop)

    def close(self, timeout: float = 30.0) -> bool:
        """Cancel what still runs, give it ``timeout`` seconds to clean up, and end the loop.

        Returns whether everything ended in time; the thread is left behind (it is a daemon) where it did not.
        """
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return True
        if loop.is_closed():
            return True
        ended = asyncio.run_coroutine_threadsafe(_cancel_all(timeout), loop)
        try:
            clean = ended.result(timeout + 5.0)
        except concurrent.futures.TimeoutError:
            clean = False
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5.0)
        return clean and not thread.is_alive()

    def _run(self, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        loop.call_soon(ready.set)
        try:
            while True:
                try:
                    loop.run_forever()
                    break
                except (SystemExit, KeyboardInterrupt) as error:
                    # A task of a user's raised it, and asyncio lets it through; the other runs here must go on.
                    log.error("something in the engine tried to end the process (%r); it goes on", error)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(_within(5.0, loop.shutdown_default_executor()))
        finally:
            loop.close()


async def _contained[T](work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise HostingError(f"the config's own code tried to end the process: {error!r}") from error


async def _cancel_all(timeout: float) -> bool:
    """Cancel every other task of this loop and wait for them, bounded."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if not tasks:
        return True
    _, late = await asyncio.wait(tasks, timeout=timeout)
    return not late


async def _within(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    """Wait for a coroutine, bounded: a thread that hangs must not keep the process."""
    with suppress(TimeoutError):
        await asyncio.wait_for(work, seconds)
