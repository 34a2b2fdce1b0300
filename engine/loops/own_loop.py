"""An SDK client on an event loop of its own, in a thread of its own.

The SDK encodes what it sends on the loop that calls it: for a batch of two megabytes a sixth of a second, in which no
attempt and no screen of this process would go on. On a loop of its own it holds up nobody but the trainer's requests,
which follow each other anyway. A client must be used from one loop alone, so all its async methods run there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

JOIN_SECONDS = 5.0


class OnOwnLoop:
    """A client whose ``…_async`` methods and ``aclose`` run on its own loop; anything else of it is as it was.

    The futures that they return are awaited there too. Cancelling a call cancels it there.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loops-trainer", daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return self._there(attribute) if name.endswith("_async") else attribute

    async def aclose(self) -> None:
        """Close the client, and end its loop and thread."""
        try:
            await self._run(self._client.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._end)

    def _there(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            result = await self._run(method(*arguments, **named))
            return _Pending(result, self) if hasattr(result, "result_async") else result

        return call

    async def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _end(self) -> None:
        self._thread.join(JOIN_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class _Pending:
    """An operation that is awaited where it was submitted."""

    def __init__(self, future: Any, where: OnOwnLoop) -> None:
        self._future, self._where = future, where

    async def result_async(self) -> Any:
        return await self._where._run(self._future.result_async())
