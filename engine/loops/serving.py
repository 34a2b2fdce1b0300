"""The published policy: the clients that serve it, which version a reply came from, and the policies before it.

One SDK client keeps its connections in a pool that it walks through for each request, so its cost grows with the
number of calls under way: with 256 of them it is three times that of a few. So a policy is served by as many clients as
its calls under way fill, ``CALLS_AT_ONCE`` each: copies of the one that publishing gave, which the SDK allows.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any

from engine.loops.releasing import release_calls

CALLS_AT_ONCE = 8
CLOSE_SECONDS = 10.0


class ServingClient:
    """One SDK sampling client of a policy: the weights of ``step`` optimizer steps or, on some servers, newer ones."""

    def __init__(self, sdk: Any, step: int) -> None:
        self.sdk, self.step = sdk, step
        self.calls = 0

    async def close(self) -> None:
        await closed("sampling client", self.sdk.aclose())


class _Policy:
    """All clients of one published policy."""

    def __init__(self, sdk: Any, step: int) -> None:
        self.step = step
        self.clients = [ServingClient(sdk, step)]

    @property
    def calls(self) -> int:
        return sum(client.calls for client in self.clients)

    def client(self) -> ServingClient:
        """One for another call."""
        for client in self.clients:
            if client.calls < CALLS_AT_ONCE:
                return client
        sdk = another(self.clients[0].sdk)
        if sdk is None:
            return self.clients[0]
        self.clients.append(ServingClient(sdk, self.step))
        return self.clients[-1]


class ServedPolicy:
    """What is sampled now. Calls under way when newer weights are published are finished by the client they began on.

    ``version``: optimizer steps of what was published last.
    """

    def __init__(self) -> None:
        self.version = 0
        self._current: _Policy | None = None
        self._earlier: set[_Policy] = set()
        self._publishing = 0
        # Loops' own count of versions, as replies tell it, to optimizer steps
        self._steps: dict[int, int] = {}

    def begin_publish(self) -> None:
        """From now on newer weights may answer; ``serve`` or ``end_publish`` follows."""
        self._publishing += 1

    def end_publish(self) -> None:
        self._publishing -= 1

    async def serve(self, sdk: Any, step: int) -> None:
        """Sample with this client from now on; those before are closed once their last call is over.

        Raises whatever the SDK does where its sampler never becomes ready.
        """
        await asyncio.to_thread(tls)
        share_tls(sdk)
        release_calls(sdk)
        policy = _Policy(sdk, step)
        self._earlier.add(policy)  # where it never serves, it ends with the session
        await _ready(sdk)
        self._earlier.discard(policy)
        previous, self._current = self._current, policy
        self.version = step
        if previous is not None:
            self._earlier.add(previous)
            await self._retire(previous)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[ServingClient]:
        """The client for one call."""
        policy = self._current
        assert policy is not None, "nothing is published yet"
        client = policy.client()
        client.calls += 1
        try:
            yield client
        finally:
            client.calls -= 1
            await self._retire(policy)

    def step_of(self, client: ServingClient, version: int | None) -> int:
        """The optimizer steps of the weights that answered a call of ``client``.

        ``version``: what the reply says of itself, in Loops' own count; None where it says nothing: the client's own.
        The two counts are matched by replies of calls that no publish came between.
        """
        if version is None:
            return client.step
        current = self._current is not None and client in self._current.clients
        if version not in self._steps and not self._publishing and current:
            self._steps[version] = client.step
        return self._steps.get(version, client.step)

    async def close(self) -> None:
        """Close all clients, beside each other: where the network is away, each of dozens takes as long as it may."""
        policies = [*self._earlier, *([self._current] if self._current is not None else [])]
        await asyncio.gather(*(client.close() for policy in policies for client in policy.clients))

    async def _retire(self, policy: _Policy) -> None:
        if policy not in self._earlier or policy.calls:
            return
        self._earlier.discard(policy)
        for client in policy.clients:
            await client.close()


async def closed(what: str, closing: Awaitable[None]) -> None:
    """Await the end of something that nothing is done with any more: bounded, and never raises."""
    try:
        await asyncio.wait_for(closing, CLOSE_SECONDS)
    except Exception as error:  # noqa: BLE001 - logged: an end is not the place to fail
        logging.getLogger("loops_tui.loops").warning("closing the %s failed: %s", what, error)


def another(sdk: Any) -> Any | None:
    """A client like this one with connections of its own; None where one is all there can be, or enough."""
    from baseten.loops import SamplingClient

    # Over HTTP/2 the SDK shares a few connections itself.
    if not isinstance(sdk, SamplingClient) or getattr(sdk, "_http2", False):
        return None
    copied = pickle.loads(pickle.dumps(sdk))
    share_tls(copied)
    release_calls(copied)
    return copied


async def _ready(sdk: Any) -> None:
    """Wait for the sampler here: otherwise each copy of the client would ask for itself."""
    import httpx

    wait = getattr(sdk, "ensure_ready_async", None)
    if wait is None:
        return
    # It may not be asked with this key; the first call says so, and goes on.
    with suppress(httpx.HTTPStatusError):
        await wait()


@lru_cache(maxsize=1)
def tls() -> Any:
    """What all clients check certificates with. Reading them takes up to 30 ms, for each client anew otherwise."""
    import httpx

    return httpx.create_ssl_context()


def share_tls(sdk: Any) -> None:
    """Have a client take ``tls()``, where it is built as those are that we know."""
    options = getattr(getattr(sdk, "_async_client", None), "_kwargs", None)
    if isinstance(options, dict):
        options.setdefault("verify", tls())
