"""Waiting for room: a provider's limits, kept in the journal of leases for all processes of a project."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace

from engine.sandboxes.errors import QuotaError, RateLimited, TransientError
from engine.store.leases import LeaseJournal
from engine.store.pace import Admission, PaceLimits
from engine.store.rows import LeaseRow

ROOM_SECONDS = 3600.0
"""So long one more sandbox waits for room where the settings name no ttl; by then whoever has one must be done."""
_LOOK_SECONDS = 1.0  # other processes make room too
_TOLD_SECONDS = 30.0


class Pace:
    """The limits of one provider, as one process heeds them. Bound to one event loop.

    Where there is no room, callers wait in the order in which they came, and one of them asks for all; ``tell`` gets a
    sentence about that now and then.
    """

    def __init__(
        self, journal: LeaseJournal, provider: str, limits: PaceLimits, tell: Callable[[str], None]
    ) -> None:
        self._journal, self._provider, self._limits, self._say = journal, provider, limits, tell
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()
        self._told_at = 0.0

    async def admit(self, row: LeaseRow) -> None:
        """Wait for room and commit the lease, its time of creation set to now.

        Raises StoreError, and QuotaError where there was no room for longer than a sandbox may live.
        """
        if not self._queue.locked() and (await self._ask(row)).admitted:
            return
        longest = row.ttl_seconds or ROOM_SECONDS
        async with self._queue:
            deadline = time.monotonic() + longest
            while True:
                self._freed.clear()
                answer = await self._ask(row)
                if answer.admitted:
                    return
                self._tell(answer)
                if time.monotonic() > deadline:
                    raise QuotaError(
                        f"no room for another {self._provider} sandbox for {longest:g} s: {answer.live} of at most "
                        f"{answer.limit} may exist; loops-tui leases lists them"
                    )
                await self._pause(answer)

    async def slow_down(self, error: TransientError) -> None:
        """The provider has refused because of a limit of its own. Raises StoreError."""
        kind = "quota" if isinstance(error, QuotaError) else "rate"
        await self._journal.slow_down(self._provider, self._limits, kind, str(error), error.retry_after)

    @staticmethod
    def concerns(error: TransientError) -> bool:
        """Whether going slower would have helped."""
        return isinstance(error, QuotaError | RateLimited)

    def freed(self) -> None:
        """A sandbox of this process is gone: look again."""
        self._freed.set()

    async def _ask(self, row: LeaseRow) -> Admission:
        fresh = replace(row, created_at=time.time())
        answer = await self._journal.admit(fresh, self._limits)
        row.created_at = fresh.created_at
        return answer

    async def _pause(self, answer: Admission) -> None:
        if not answer.full:
            await asyncio.sleep(min(answer.wait, 60.0))
            return
        try:
            async with asyncio.timeout(_LOOK_SECONDS * random.uniform(0.8, 1.2)):
                await self._freed.wait()
        except TimeoutError:
            return

    def _tell(self, answer: Admission) -> None:
        now = time.monotonic()
        if answer.full and now - self._told_at >= _TOLD_SECONDS:
            self._told_at = now
            why = f" ({answer.why})" if answer.why else ""
            self._say(
                f"waiting for room: {answer.live} {self._provider} sandboxes exist, and at most {answer.limit} may{why}"
            )
