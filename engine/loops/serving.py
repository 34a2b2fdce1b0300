"""The published policy: the client that serves it, which version a reply came from, and the clients before it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class ServingClient:
    """One SDK sampling client, pinned to the weights of ``step`` optimizer steps or, on some servers, newer ones."""

    def __init__(self, sdk: Any, step: int) -> None:
        self.sdk, self.step = sdk, step
        self.calls = 0


class ServedPolicy:
    """What is sampled now. Calls under way when newer weights are published are finished by the client they began on.

    ``version``: optimizer steps of what was published last.
    """

    def __init__(self) -> None:
        self.version = 0
        self._current: ServingClient | None = None
        self._earlier: set[ServingClient] = set()
        self._publishing = 0
        self._steps: dict[
            int, int
        ] = {}  # Loops' own count of versions, as replies tell it, to optimizer steps

    def begin_publish(self) -> None:
        """From now on newer weights may answer; ``serve`` or ``end_publish`` follows."""
        self._publishing += 1

    def end_publish(self) -> None:
        self._publishing -= 1

    async def serve(self, sdk: Any, step: int) -> None:
        """Sample with this client from now on; the one before is closed once its last call is over."""
        previous, self._current = self._current, ServingClient(sdk, step)
        self.version = step
        if previous is not None:
            self._earlier.add(previous)
            await self._retire(previous)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[ServingClient]:
        """The client for one call."""
        client = self._current
        assert client is not None, "nothing is published yet"
        client.calls += 1
        try:
            yield client
        finally:
            client.calls -= 1
            await self._retire(client)

    def step_of(self, client: ServingClient, version: int | None) -> int:
        """The optimizer steps of the weights that answered a call of ``client``.

        ``version``: what the reply says of itself, in Loops' own count; None where it says nothing: the client's own.
        The two counts are matched by replies of calls that no publish came between.
        """
        if version is None:
            return client.step
        if version not in self._steps and not self._publishing and client is self._current:
            self._steps[version] = client.step
        return self._steps.get(version, client.step)

    def closers(self) -> list[tuple[str, Any]]:
        """What ends all clients, for the session's end."""
        clients = [*self._earlier, *([self._current] if self._current is not None else [])]
        return [("sampling client", client.sdk.aclose()) for client in clients]

    async def _retire(self, client: ServingClient) -> None:
        if client.calls or client not in self._earlier:
            return
        self._earlier.discard(client)
        try:
            await client.sdk.aclose()
        except Exception as error:  # noqa: BLE001 - nothing is sampled with it any more
            logging.getLogger("loops_tui.loops").warning("closing a sampling client failed: %s", error)
