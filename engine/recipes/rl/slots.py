"""The places of a run's attempts: who is being set up, waits for a sampling slot, holds one, or is graded."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

#: (group id, attempt)
type Key = tuple[int, int]


class Slots:
    """Counts attempts; who gets a slot is decided elsewhere: ``changed`` is called whenever that may be decided anew.

    ``ungraded``: so many attempts may wait to be graded; each further one, which keeps its sandbox, counts as a slot.
    """

    def __init__(
        self,
        grading: int,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        ungraded: int = sys.maxsize,
    ) -> None:
        self._changed, self._clock = changed, clock
        self._most_ungraded, self._ungraded = ungraded, 0
        self.grading = asyncio.Semaphore(grading)
        self._setting = 0  # attempts being set up for the first time; a retry's set-up is not counted
        self._waiting: dict[Key, asyncio.Future[None]] = {}
        self._guests: dict[Key, asyncio.Future[None]] = {}
        self._running: dict[Key, int] = {}
        self._since, self._seconds = clock(), 0.0

    @property
    def ahead(self) -> int:
        """Attempts that are being set up, or are set up and wait for a slot."""
        return self._setting + len(self._waiting)

    @property
    def used(self) -> int:
        """Slots that are held, or kept free until graders have caught up."""
        return len(self._running) + max(0, self._ungraded - self._most_ungraded)

    @property
    def waiting(self) -> list[Key]:
        """Attempts that wait for a slot, in order."""
        return sorted(self._waiting)

    @property
    def guests(self) -> list[Key]:
        """Attempts of an evaluation that wait for a slot, as they came."""
        return list(self._guests)

    @property
    def oldest(self) -> int | None:
        """The lowest policy version under which a holder of a slot began."""
        return min(self._running.values(), default=None)

    def seconds(self) -> float:
        """Seconds that slots were held until now, summed over slots."""
        now = self._clock()
        self._seconds += len(self._running) * (now - self._since)
        self._since = now
        return self._seconds

    def give(self, key: Key, version: int) -> None:
        """A waiting attempt samples from now on, beginning under this policy version."""
        self.seconds()
        self._running[key] = version
        (self._guests if key in self._guests else self._waiting).pop(key).set_result(None)

    def begin(self, key: Key) -> AttemptPlaces:
        """An attempt is being set up."""
        self._setting += 1
        return AttemptPlaces(self, key)

    def guest(self, key: Key) -> AttemptPlaces:
        """An evaluation's attempt; its set-up is not ahead of anything."""
        return AttemptPlaces(self, key, guest=True)

    def set_up(self) -> None:
        self._setting -= 1

    def ask(self, key: Key, *, guest: bool) -> asyncio.Future[None]:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._guests if guest else self._waiting)[key] = slot
        self._changed()
        return slot

    @asynccontextmanager
    async def graded(self, waiting: Callable[[], None]) -> AsyncIterator[None]:
        """A place among those that are graded."""
        if self.grading.locked():
            waiting()
        self._ungraded += 1
        try:
            await self.grading.acquire()
        finally:
            self._ungraded -= 1
            self._changed()
        try:
            yield
        finally:
            self.grading.release()

    def leave(self, key: Key) -> None:
        """Give up a slot, or the wait for one."""
        self.seconds()
        self._guests.pop(key, None)
        self._waiting.pop(key, None)
        self._running.pop(key, None)
        self._changed()


class AttemptPlaces:
    """One attempt's (``engine.episodes.places.Places``)."""

    def __init__(self, slots: Slots, key: Key, *, guest: bool = False) -> None:
        self._slots, self._key = slots, key
        self._guest, self._setting = guest, not guest

    @asynccontextmanager
    async def sampling(self, waiting: Callable[[], None]) -> AsyncIterator[None]:
        self.over()
        slot = self._slots.ask(self._key, guest=self._guest)
        try:
            if not slot.done():
                waiting()
            await slot
            yield
        finally:
            self._slots.leave(self._key)

    def grading(self, waiting: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return self._slots.graded(waiting)

    def over(self) -> None:
        """The first set-up is over, or the attempt."""
        if self._setting:
            self._setting = False
            self._slots.set_up()
