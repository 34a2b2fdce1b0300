"""Leases: no sandbox without a row that names it first, none let go without a confirmation.

``LeaseKeeper`` is what a run uses. It commits ``intended`` before the provider is asked, and whatever happens then
(an error, a cancellation, the end of the run) the lease ends as ``released``, or as ``lost`` with the last error.
Only the death of the process can keep it from that; ``engine.sandboxes.cleanup`` finishes then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import tenacity

from engine.sandboxes.contract import Provider, ProviderReport, Released, Sandbox, SandboxSpec
from engine.sandboxes.errors import (
    PermanentError,
    ProviderError,
    SandboxGone,
    TransientError,
)
from engine.sandboxes.naming import (
    LABEL_ATTEMPT,
    LABEL_HOST,
    LABEL_PROJECT,
    LABEL_RUN,
    new_name,
)
from engine.sandboxes.pace import ROOM_SECONDS, Owner, Pace
from engine.sandboxes.settings import SandboxSettings
from engine.store.errors import StoreError
from engine.store.leases import LeaseJournal
from engine.store.pace import PaceLimits
from engine.store.rows import LeaseRow, LeaseState
from engine.store.store import Store

_LOG = logging.getLogger(__name__)
CREATE_TRIES = 3
RELEASE_TRIES = 6
RELEASE_SECONDS = 60.0
"""One try to release may take so long."""

type Hook = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Leased:
    """A sandbox that is held, and its lease's name."""

    name: str
    sandbox: Sandbox


class LeaseKeeper:
    """The leases of one run (or of none) in one process; bound to one event loop.

    ``project``: the label that marks the project's sandboxes (``naming.project_label``). ``limits``: how many
    sandboxes, and how fast, where the provider has limits; ``leave_room``: an attempt will want two at once. ``price``:
    of one GB of memory for one hour, where it is known. ``tell`` gets sentences for a person. ``hook`` is called with the
    name of each step (for tests).
    """

    def __init__(
        self,
        store: Store,
        provider: Provider,
        settings: SandboxSettings,
        *,
        project: str,
        run_id: str | None = None,
        host_id: str | None = None,
        limits: PaceLimits | None = None,
        leave_room: bool = False,
        price: float | None = None,
        tell: Callable[[str], None] = _LOG.warning,
        hook: Hook | None = None,
    ) -> None:
        self._journal = LeaseJournal(store)
        self._tell = tell
        self._pace = (
            None
            if limits is None
            else Pace(self._journal, provider.name, limits, tell, leave_room=leave_room)
        )
        self._price = price
        self._provider = provider
        self._settings = settings
        self._project = project
        self._run_id = run_id
        self._host_id = host_id
        self._hook: Hook = hook or _nothing
        self._creating = asyncio.Semaphore(settings.max_concurrent_creates)
        self._held: dict[str, Leased] = {}
        self._releases: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    @property
    def held(self) -> Mapping[str, Leased]:
        """What this keeper holds right now, by name."""
        return self._held

    def let_wait(self, ahead: Callable[[Owner], bool]) -> None:
        """See ``Pace.let_wait``; nothing where the provider has no limits."""
        if self._pace is not None:
            self._pace.let_wait(ahead)

    async def probe(self) -> ProviderReport:
        """Ask the provider what holds here."""
        return await self._provider.probe()

    # -- acquire ------------------------------------------------------------------------------------------------

    async def acquire(
        self,
        *,
        group_id: int | None = None,
        attempt: int | None = None,
        number: int = 1,
        ttl_seconds: float | None = None,
        seconds: float | None = None,
    ) -> Leased:
        """A fresh sandbox, the attempt's ``number``-th; ``ttl_seconds`` overrides the settings'.

        A creation that fails for a passing reason is tried again under a new name; all tries together may take
        ``seconds``, waiting for room not counted. One that the provider's limits refuse waits for room again, for as
        long as a sandbox may live. Raises ProviderError when the provider will not, StoreError when the
        intent cannot be stored (then nothing was created).
        """
        clock = _CreateClock(seconds)
        tries, until = 1, time.monotonic() + (ttl_seconds or self._settings.ttl_seconds or ROOM_SECONDS)
        # Where the provider has limits, they say how many are made at once: one that waits for room must not keep others.
        async with self._creating if self._pace is None else contextlib.nullcontext():
            while True:
                spec = self._spec(group_id, attempt, number, ttl_seconds)
                try:
                    return await self._create(spec, group_id, attempt, clock)
                except TransientError as error:
                    if self._closing or clock.over:
                        raise
                    limited = self._pace is not None and self._pace.concerns(error)
                    if self._pace is not None and limited:
                        await self._pace.slow_down(error)  # which makes the next one wait
                    if (time.monotonic() > until) if limited else (tries == CREATE_TRIES):
                        raise
                    self._tell(f"sandbox {spec.name}: creation failed, trying again: {error}")
                    if not limited:
                        await asyncio.sleep(_pause(tries, error))
                        tries += 1

    def _spec(
        self, group_id: int | None, attempt: int | None, number: int, ttl_seconds: float | None
    ) -> SandboxSpec:
        name = new_name(self._run_id or "none", group_id, attempt, number)
        labels = {
            LABEL_PROJECT: self._project,
            LABEL_RUN: self._run_id or "none",
            LABEL_HOST: self._host_id or "none",
            LABEL_ATTEMPT: "none" if group_id is None else f"{group_id}.{attempt or 0}.{number}",
        }
        return SandboxSpec(
            name,
            labels,
            image=self._settings.image,
            memory_mb=self._settings.memory_mb,
            ttl_seconds=self._settings.ttl_seconds if ttl_seconds is None else ttl_seconds,
            region=self._settings.region,
        )

    async def _create(
        self, spec: SandboxSpec, group_id: int | None, attempt: int | None, clock: _CreateClock
    ) -> Leased:
        if self._closing:
            raise PermanentError("no sandboxes are created any more: the run is ending")
        row = LeaseRow(
            spec.name,
            self._provider.name,
            "",
            self._run_id,
            group_id,
            attempt,
            self._host_id,
            LeaseState.INTENDED,
            time.time(),
            ttl_seconds=spec.ttl_seconds,
            memory_mb=spec.memory_mb,
            price_per_gb_hour=self._price,
        )
        try:
            if self._pace is None:
                await self._journal.add(row)
            else:
                await self._pace.admit(row)
        except StoreError:
            raise  # nothing was committed, nothing is created
        except asyncio.CancelledError:
            self._start_release(spec.name)  # the row may be on its way to the file
            raise
        self._hook("intent committed")
        try:
            async with clock.running(spec.name):
                sandbox = await self._provider.create(spec)
            self._hook("created")
            kept = await self._journal.change(
                spec.name,
                LeaseState.ACTIVE,
                only_from=(LeaseState.INTENDED,),
                active_at=time.time(),
                isolation=sandbox.isolation,
            )
            if not kept:
                raise SandboxGone(
                    f"the sandbox {spec.name} was released by somebody else while it was being made"
                )
            self._hook("active committed")
        except BaseException:
            # Whatever became of the creation, its name is released; nobody has to wait for that.
            self._start_release(spec.name)
            raise
        leased = Leased(spec.name, sandbox)
        self._held[spec.name] = leased
        return leased

    # -- release ------------------------------------------------------------------------------------------------

    async def release(self, leased: Leased) -> None:
        """Let a sandbox go; returns when that is confirmed. Idempotent, and goes on when the caller is cancelled.

        Raises ProviderError where it could not be released: the lease is ``lost`` then, and cleanup's. StoreError:
        it was released, but the journal could not be told.
        """
        await asyncio.shield(self._start_release(leased.name))

    async def release_all(self) -> int:
        """Let go of everything that is held, and finish what is being released; returns how many were lost.

        From here on nothing is acquired. Goes on when the caller is cancelled.
        """
        self._closing = True
        for name in list(self._held):
            self._start_release(name)
        return await asyncio.shield(self._finish())

    async def aclose(self) -> None:
        """As ``release_all``."""
        await self.release_all()

    async def _finish(self) -> int:
        lost = 0
        while self._releases:
            results = await asyncio.gather(*self._releases.values(), return_exceptions=True)
            lost += sum(isinstance(result, BaseException) for result in results)
        return lost

    def _start_release(self, name: str) -> asyncio.Task[None]:
        task = self._releases.get(name)
        if task is None:
            if self._pace is not None:
                self._pace.leaving(name)
            task = asyncio.create_task(self._release(name), name=f"release {name}")
            self._releases[name] = task
            task.add_done_callback(lambda done: self._released(name, done))
        return task

    def _released(self, name: str, done: asyncio.Task[None]) -> None:
        self._releases.pop(name, None)
        self._held.pop(name, None)
        if self._pace is not None:
            self._pace.freed()
        if not done.cancelled() and (error := done.exception()) is not None:
            _LOG.error("sandbox %s could not be released: %s", name, error)

    async def _release(self, name: str) -> None:
        try:
            known = await self._journal.change(name, LeaseState.RELEASING)
        except StoreError as error:
            known = True  # the sandbox costs money, whatever the disk says
            _LOG.warning("sandbox %s is released, but the journal does not take it: %s", name, error)
        self._hook("releasing committed")
        await release_confirmed(self._journal, self._provider, name, known=known, hook=self._hook)


class _CreateClock:
    """The time that creations of one ``acquire`` may take together."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._left = seconds, seconds

    @property
    def over(self) -> bool:
        return self._left is not None and self._left <= 0

    @contextlib.asynccontextmanager
    async def running(self, name: str) -> AsyncIterator[None]:
        """Raises TransientError where the block takes longer than what is left."""
        began = time.monotonic()
        limit = asyncio.timeout(self._left)
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TransientError(
                f"the sandbox {name} was not ready: creating it took longer than {self._seconds:g} s"
            ) from error
        finally:
            if self._left is not None:
                self._left -= time.monotonic() - began


async def release_confirmed(
    journal: LeaseJournal,
    provider: Provider,
    name: str,
    *,
    known: bool = True,
    tries: int = RELEASE_TRIES,
    settle_seconds: float = 0.0,
    hook: Callable[[str], None] | None = None,
) -> Released:
    """Release a name at its provider, again and again if need be, and write down what became of it.

    ``known``: whether the journal has a row of it. ``settle_seconds``: see ``Provider.release``. Raises the last
    ProviderError after ``tries`` failures, or at once where trying again is pointless; the lease is ``lost`` then.
    """
    tell = hook or _nothing
    number = 0

    async def once() -> Released:
        nonlocal number
        number += 1
        try:
            async with asyncio.timeout(RELEASE_SECONDS + settle_seconds):
                return await provider.release(name, settle_seconds=settle_seconds)
        except TimeoutError as error:
            raise TransientError(
                f"{name}: the provider did not answer within {RELEASE_SECONDS:.0f} s"
            ) from error

    async def note(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        _LOG.warning("sandbox %s: release failed, trying again: %s", name, error)
        if known:
            await journal.change(name, LeaseState.RELEASING, tries=number, last_error=str(error))

    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(tries),
        wait=_wait,
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, TransientError)),
        before_sleep=note,
        reraise=True,
    )
    try:
        released = await retrying(once)
    except ProviderError as error:
        if known:
            await journal.change(name, LeaseState.LOST, tries=number, last_error=str(error))
        raise
    tell("released by the provider")
    if known:
        await journal.change(name, LeaseState.RELEASED, released_at=time.time(), tries=number)
    tell("release committed")
    return released


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    return _pause(state.attempt_number, error)


def _pause(number: int, error: BaseException | None) -> float:
    """Seconds until the next try: what the provider asked for, or a growing, jittered pause."""
    asked = getattr(error, "retry_after", None)
    if asked is not None:
        return min(float(asked), 60.0)
    return random.uniform(0.5, 1.0) * min(10.0, 0.2 * 2**number)


def _nothing(_: str) -> None:
    """No hook."""
