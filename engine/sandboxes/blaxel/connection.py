"""One sandbox's connection: the SDK's instance, its clients built off the event loop and closed in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from engine.sandboxes.blaxel.failures import CALL_SECONDS, TRIES, ask
from engine.sandboxes.errors import ProviderError, SandboxGone

if TYPE_CHECKING:
    import httpx
    from blaxel.core import SandboxInstance


class Janitor:
    """Work that outlives the call that caused it, such as ending a cancelled command; one for each provider."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever spawns reports for itself; nobody waits for it here

    async def finish(self, seconds: float) -> None:
        """Wait for what is under way, and cancel what takes longer."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=seconds)


class Connection:
    """The SDK's instance of one sandbox. ``env``: variables of every command. ``threads``: where clients are built."""

    def __init__(
        self, name: str, box: SandboxInstance, env: dict[str, str], threads: Executor, janitor: Janitor
    ) -> None:
        self.name, self.box, self.env = name, box, env
        self.janitor = janitor
        self.handed_out = False  # whether an episode has the SDK's instance
        self._threads = threads
        self._warm: dict[str, asyncio.Future[Any]] = {}
        self.closed = False

    async def warm(self, part: str) -> None:
        """Build the client of ``process`` or ``fs`` in a thread: it costs 20 ms, which the event loop has not got.

        Raises SandboxGone after ``close``.
        """
        if self.closed:
            raise self.gone()
        if part not in self._warm:
            build = getattr(self.box, part).get_client
            self._warm[part] = asyncio.get_running_loop().run_in_executor(self._threads, build)
        await asyncio.shield(self._warm[part])

    async def ask[T](
        self,
        doing: str,
        call: Callable[[], Awaitable[T]],
        *,
        part: str = "process",
        seconds: float = CALL_SECONDS,
        tries: int = TRIES,
    ) -> T:
        """One call of the SDK on this sandbox. Raises ProviderError."""
        await self.warm(part)
        try:
            return await ask(f"{doing} in {self.name}", call, seconds=seconds, tries=tries)
        except ProviderError as error:
            if self.closed:  # under the call's hands: whatever it makes of that
                raise self.gone() from error
            raise

    def gone(self) -> SandboxGone:
        return SandboxGone(f"the sandbox {self.name} is gone: it was released")

    async def get(self, part: str, path: str, **more: Any) -> httpx.Response:
        """A plain request with the SDK's own client, for what its methods cannot do without waste."""
        client = getattr(self.box, part).get_client()
        response = await client.get(path, **more)
        getattr(self.box, part).handle_response_error(response)
        return response

    async def close(self) -> None:
        """Close the clients; the SDK itself leaves them open. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for part, built in self._warm.items():
            await asyncio.wait({built}, timeout=10.0)
            if built.done() and not built.cancelled() and built.exception() is None:
                await getattr(self.box, part).get_client().aclose()
