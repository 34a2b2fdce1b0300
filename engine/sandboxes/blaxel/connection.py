"""One sandbox's connection: the SDK's instance with one client of ours in it, closed in the end.

By itself the SDK builds a client for commands, one for files, and one for each question after a process. Each blocks
the event loop for 20 ms while it reads the machine's certificates, takes 0.7 MB, and is never closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import httpx

from engine.sandboxes.blaxel.failures import CALL_SECONDS, TRIES, ask
from engine.sandboxes.errors import ProviderError, SandboxGone

if TYPE_CHECKING:
    from blaxel.core import SandboxInstance


ENDED = frozenset({"FAILED", "TERMINATED", "DELETING", "DEACTIVATED", "DEACTIVATING"})
"""Words of a sandbox's record that mean that it runs no command any more."""


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


def new_client(box: SandboxInstance, certificates: ssl.SSLContext) -> httpx.AsyncClient:
    """A client as the SDK would make it, with certificates that were read once."""
    from blaxel.core import settings

    return httpx.AsyncClient(
        base_url=box.process.url,
        headers={**settings.headers, **box.config.headers},
        http2=False,
        limits=httpx.Limits(max_connections=100, max_keepalive_connections=20),
        timeout=httpx.Timeout(300.0, connect=10.0),
        verify=certificates,
    )


class Connection:
    """The SDK's instance of one sandbox. ``env``: variables of every command."""

    def __init__(
        self,
        name: str,
        box: SandboxInstance,
        env: dict[str, str],
        certificates: ssl.SSLContext,
        janitor: Janitor,
    ) -> None:
        self.name, self.box, self.env = name, box, env
        self.janitor = janitor
        self.handed_out = False  # whether an episode has the SDK's instance
        self.closed = False
        self.client = new_client(box, certificates)
        # The SDK has no public place for it; get_client() makes one only where there is none.
        for part in (box.process, box.fs):
            part._client = self.client

    async def ask[T](
        self,
        doing: str,
        call: Callable[[], Awaitable[T]],
        *,
        seconds: float = CALL_SECONDS,
        tries: int = TRIES,
    ) -> T:
        """One call of the SDK on this sandbox. Raises ProviderError."""
        if self.closed:
            raise self.gone()
        try:
            return await ask(f"{doing} in {self.name}", call, seconds=seconds, tries=tries)
        except ProviderError as error:
            if self.closed:  # under the call's hands: whatever it makes of that
                raise self.gone() from error
            raise

    async def check_record(self) -> None:
        """Raises SandboxGone where the service itself says that the sandbox has ended or failed, or ProviderError."""
        from blaxel.core import SandboxInstance

        box = await ask(f"looking for the sandbox {self.name}", lambda: SandboxInstance.get(self.name))
        if str(box.status) in ENDED:
            raise SandboxGone(f"the sandbox {self.name} is gone: Blaxel says it is {box.status}")

    def gone(self) -> SandboxGone:
        return SandboxGone(f"the sandbox {self.name} is gone: it was released")

    async def close(self) -> None:
        """Close the client; the SDK itself never does. Idempotent."""
        if not self.closed:
            self.closed = True
            await self.client.aclose()
