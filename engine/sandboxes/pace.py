"""Waiting for room: a provider's limits, kept in the journal of leases for all processes of a project.

An attempt that is graded in a fresh sandbox has two for a while. So that no attempts can hold all the room and wait
for more of it for ever, the last place is kept for those who hold a sandbox already, and they come first. Where the room
has shrunk under attempts that all wait so (a provider refused), one of them is refused, and its sandbox makes room.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from engine.sandboxes.errors import PermanentError, QuotaError, RateLimited, TransientError
from engine.store.leases import LeaseJournal
from engine.store.pace import Admission, PaceLimits
from engine.store.rows import LeaseRow

ROOM_SECONDS = 3600.0
"""So long one more sandbox waits for room where the settings name no ttl; by then whoever has one must be done."""
_LOOK_SECONDS = 1.0  # other processes make room too
_LATER_SECONDS = 0.2  # attempts that are set up ahead ask so often whether they still are
_TOLD_SECONDS = 30.0
STUCK_SECONDS = 60.0
"""So long attempts that all wait for a second sandbox wait for another process, which may make room."""

type Owner = tuple[int, int | None]
"""An attempt: its group's id and its number."""


class Pace:
    """The limits of one provider, as one process heeds them. Bound to one event loop.

    Where there is no room, callers wait in the order in which they came, and one of them asks for all; ``tell`` gets a
    sentence about that now and then. ``leave_room``: attempts will want a second sandbox; otherwise that is found out
    when the first one does.
    """

    def __init__(
        self,
        journal: LeaseJournal,
        provider: str,
        limits: PaceLimits,
        tell: Callable[[str], None],
        *,
        leave_room: bool = False,
    ) -> None:
        self._journal, self._provider, self._limits, self._say = journal, provider, limits, tell
        self._leave_room = leave_room
        self._first, self._second = _Queue(), _Queue()
        self._open: dict[str, Owner | None] = {}  # admitted, and not being released
        self._waiting: list[Owner] = []  # those who hold a sandbox and wait for one more
        self._stuck_since: float | None = None
        self._told_at = 0.0
        self._is_ahead: Callable[[Owner], bool] = lambda _: False
        self._refused = False  # whether the account has turned out to allow fewer than the config

    def let_wait(self, ahead: Callable[[Owner], bool]) -> None:
        """Once the account's quota has refused a sandbox, attempts that nobody waits for yet get none: they could hold
        all that there are while one that is waited for, which is tried again or evaluated, finds no room.

        ``ahead`` is asked about an attempt again and again, for it is waited for sooner or later.
        """
        self._is_ahead = ahead

    async def admit(self, row: LeaseRow) -> None:
        """Wait for room and commit the lease, its time of creation set to now.

        Raises StoreError; QuotaError where there was no room for longer than a sandbox may live; PermanentError where
        there will be none, since everybody who could make some waits here.
        """
        owner = None if row.group_id is None else (row.group_id, row.attempt)
        if owner is not None and owner in self._open.values():
            self._leave_room = True
            with self._wanting(owner):
                await self._wait(row, owner, self._second)
        else:
            while not await self._wait(row, owner, self._first):  # noqa: ASYNC110 - nobody tells when it is waited for
                await asyncio.sleep(_LATER_SECONDS)
        self._open[row.name] = owner

    async def _wait(self, row: LeaseRow, owner: Owner | None, queue: _Queue) -> bool:
        """Returns whether the lease is committed; otherwise others are to have what room there is."""
        at_once = not queue.lock.locked() and not self._behind(queue) and not self._comes_later(owner, queue)
        if at_once and (await self._ask(row, queue)).admitted:
            return True
        longest = row.ttl_seconds or ROOM_SECONDS
        async with queue.lock:
            deadline = time.monotonic() + longest
            while True:
                if self._comes_later(owner, queue):
                    return False
                queue.look.clear()
                if self._behind(queue):
                    await _until(queue.look)
                    continue
                answer = await self._ask(row, queue)
                if answer.admitted:
                    return True
                self._tell(answer)
                if queue is self._second:
                    self._refuse_where_stuck(answer)
                if time.monotonic() > deadline:
                    raise QuotaError(
                        f"no room for another {self._provider} sandbox for {longest:g} s: {answer.live} of at most "
                        f"{answer.limit} may exist; loops-tui leases lists them"
                    )
                await self._pause(answer, queue)

    def _behind(self, queue: _Queue) -> bool:
        """Those who hold a sandbox come first: they are the ones who make room."""
        return queue is self._first and bool(self._waiting)

    def _comes_later(self, owner: Owner | None, queue: _Queue) -> bool:
        return self._refused and queue is self._first and owner is not None and self._is_ahead(owner)

    @contextmanager
    def _wanting(self, owner: Owner) -> Iterator[None]:
        self._waiting.append(owner)
        try:
            yield
        finally:
            self._waiting.remove(owner)
            self._look()

    def _refuse_where_stuck(self, answer: Admission) -> None:
        """Raises PermanentError where all sandboxes belong to attempts that wait for one more."""
        now = time.monotonic()
        if not answer.full or any(owner not in self._waiting for owner in self._open.values()):
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = now
        if answer.live <= len(self._open) or now - self._stuck_since >= STUCK_SECONDS:
            self._stuck_since = None
            raise PermanentError(
                f"no room for a second {self._provider} sandbox to grade in: {answer.live} of at most {answer.limit} may "
                "exist, and their attempts all wait for another one; allow more, or fewer attempts at once "
                "(training.max_concurrent_rollouts)"
            )

    async def slow_down(self, error: TransientError) -> None:
        """The provider has refused because of a limit of its own. Raises StoreError."""
        kind = "quota" if isinstance(error, QuotaError) else "rate"
        self._refused = self._refused or kind == "quota"
        await self._journal.slow_down(self._provider, self._limits, kind, str(error), error.retry_after)

    @staticmethod
    def concerns(error: TransientError) -> bool:
        """Whether going slower would have helped."""
        return isinstance(error, QuotaError | RateLimited)

    def leaving(self, name: str) -> None:
        """A sandbox is being released: whoever had it does not hold it any more."""
        self._open.pop(name, None)

    def freed(self) -> None:
        """A sandbox of this process is gone: look again."""
        self._look()

    def _look(self) -> None:
        self._first.look.set()
        self._second.look.set()

    async def _ask(self, row: LeaseRow, queue: _Queue) -> Admission:
        fresh = replace(row, created_at=time.time())
        leave_room = self._leave_room and queue is self._first
        answer = await self._journal.admit(fresh, self._limits, leave_room=leave_room)
        row.created_at = fresh.created_at
        return answer

    async def _pause(self, answer: Admission, queue: _Queue) -> None:
        if answer.full:
            await _until(queue.look)
        else:
            await asyncio.sleep(min(answer.wait, 60.0))

    def _tell(self, answer: Admission) -> None:
        now = time.monotonic()
        if answer.full and now - self._told_at >= _TOLD_SECONDS:
            self._told_at = now
            why = f" ({answer.why})" if answer.why else ""
            self._say(
                f"waiting for room: {answer.live} {self._provider} sandboxes exist, and at most {answer.limit} may{why}"
            )


class _Queue:
    """Callers in the order in which they came; whoever has the lock asks, again when ``look`` is set."""

    def __init__(self) -> None:
        self.lock, self.look = asyncio.Lock(), asyncio.Event()


async def _until(look: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_LOOK_SECONDS * random.uniform(0.8, 1.2)):
            await look.wait()
    except TimeoutError:
        return
