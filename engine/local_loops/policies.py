"""Which weights a sample is drawn from.

A published version is kept as a :class:`Policy`: an adapter, merged into the base weights when it is first decoded.
A client that carries a version floor gets **exactly** that version while it is kept (the last few in memory, the
named ones on disk), and otherwise the next newer one: the floor is a lower bound, but rollouts that mix versions
unasked are hard to reason about. A floor that is not live yet holds the request.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from engine.local_loops.compute.interface import Adapter, Backend
from engine.local_loops.faults import ApiFault, unprocessable


class Policy:
    """A set of weights to decode with. Everything but the attributes is for the decode thread."""

    def __init__(
        self,
        label: str,
        backend: Backend,
        *,
        version: int = 0,
        adapter: Callable[[], Adapter] | None = None,
        weights: Any = None,
    ) -> None:
        self.label = label
        self.backend = backend
        self.version = version
        self._adapter = adapter
        self._weights = weights

    def weights(self) -> Any:
        """The merged weights, made at first use."""
        if self._weights is None:
            adapter = self._adapter() if self._adapter is not None else None
            self._weights = self.backend.weights(adapter)
        return self._weights

    @property
    def merged_bytes(self) -> int:
        """Memory that :meth:`forget` would free (about)."""
        return self.backend.card.parameters * 4 if self._weights is not None else 0

    def forget(self) -> None:
        """Drop the merged weights; the next use makes them again."""
        self._weights = None


class RunPolicies:
    """The policy versions of one run; used from the event loop. ``kept`` of them stay in memory."""

    def __init__(self, run_id: str, kept: int, stored: Callable[[int], Policy | None]) -> None:
        self._run_id = run_id
        self._kept = kept
        #: Finds a version that is no longer in memory but still on disk under a name.
        self._stored = stored
        self._versions: OrderedDict[int, Policy] = OrderedDict()
        self._waiting: set[asyncio.Future[None]] = set()
        self.live: Policy | None = None
        self.closed = False

    def publish(self, policy: Policy, *, live: bool) -> None:
        """Add a version; ``live`` makes it the one that unpinned requests get."""
        self._versions[policy.version] = policy
        while len(self._versions) > self._kept:
            oldest = next(iter(self._versions))
            del self._versions[oldest]
        if live:
            self.live = policy
        self._wake()

    def close(self) -> None:
        """Refuse every waiting and future request: the run is deactivated."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    def at_least(self, floor: int) -> Policy | None:
        """The version at the floor, or the nearest kept one above it once the live one has passed it."""
        exact = self._versions.get(floor) or self._stored(floor)
        if exact is not None:
            return exact
        if self.live is None or self.live.version < floor:
            return None
        newer = [version for version in self._versions if floor < version <= self.live.version]
        return self._versions[min(newer)] if newer else self.live

    async def wait_for(self, floor: int, timeout: float) -> Policy:
        """Hold until the floor is served. A 408 would cost the SDK seconds of back-off."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            if self.closed:
                raise unprocessable(f"run {self._run_id} is deactivated")
            policy = self.at_least(floor)
            if policy is not None:
                return policy
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                live = self.live.version if self.live is not None else 0
                raise ApiFault(
                    500,
                    f"policy version {floor} of run {self._run_id} did not become live within {timeout:g} s "
                    f"(live: {live})",
                ) from None
            finally:
                self._waiting.discard(waiter)
