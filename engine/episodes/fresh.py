"""Sandboxes that grading opens beside the attempt's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from engine.episodes.user_code import standing_still
from engine.policy.conversation import refuse
from engine.sandboxes.contract import Sandbox


class LeasedSandbox(Protocol):
    """A sandbox that is held under a lease."""

    @property
    def sandbox(self) -> Sandbox: ...


class SandboxSource[LeaseT: LeasedSandbox](Protocol):
    """Where an attempt's sandboxes come from (``engine.sandboxes.leases``): one for each try."""

    async def acquire(self, seconds: float) -> LeaseT:
        """A fresh sandbox; its lease is written down before the provider is asked.

        Creating it may take ``seconds``; waiting until the provider's limits have room for it is not counted.
        """
        ...

    async def release(self, leased: LeaseT) -> None:
        """End it, confirmed; shielded from cancellation. Never raises: what fails stays on the lease list."""
        ...


class FreshSandboxes:
    """Those of one call of ``grade``, each made within ``seconds``.

    ``deadline``, that of the call, stands still until a sandbox is there.
    """

    def __init__(self, source: SandboxSource[Any], seconds: float, deadline: asyncio.Timeout) -> None:
        self._source, self._seconds, self._deadline = source, seconds, deadline
        self._held: list[Any] = []
        self._closed = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sandbox]:
        """One more; released, confirmed, however the block ends. Raises AttemptOver after ``close``."""
        if self._closed:
            await refuse()
        with standing_still(self._deadline):
            leased = await self._source.acquire(self._seconds)
        self._held.append(leased)
        try:
            if self._closed:
                await refuse()
            yield leased.sandbox
        finally:
            await self._release(leased)

    async def close(self) -> None:
        """The call has ended: release what its code has not let go of."""
        self._closed = True
        for leased in list(self._held):
            await self._release(leased)

    async def _release(self, leased: Any) -> None:
        if leased in self._held:
            self._held.remove(leased)
            await self._source.release(leased)
