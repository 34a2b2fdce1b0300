"""Sandboxes on Blaxel. ``create`` may leave something behind when it fails; ``release`` of the name ends that too."""

from __future__ import annotations

import asyncio
import math
import os
import ssl
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from engine.sandboxes.blaxel import sdk
from engine.sandboxes.blaxel.connection import ENDED, Connection, Janitor
from engine.sandboxes.blaxel.failures import ask, status_of
from engine.sandboxes.blaxel.memory import Memory, recall, remember
from engine.sandboxes.blaxel.sandbox import BlaxelSandbox
from engine.sandboxes.contract import (
    Isolation,
    ProviderReport,
    ProviderSandbox,
    Released,
    ReleaseOutcome,
    Sandbox,
    SandboxSpec,
)
from engine.sandboxes.errors import (
    CredentialsError,
    PermanentError,
    ProviderError,
    QuotaError,
    RateLimited,
    SandboxGone,
    TransientError,
)
from engine.sandboxes.naming import NAME_PREFIX, check_labels, check_name, has_labels
from engine.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from blaxel.core import SandboxInstance

LABEL_MARK = "ltui-mark"
"""The project's random mark, see ``memory``."""
CREATE_SECONDS = 180.0
MIN_TTL_SECONDS = 300.0
SETTLE_SECONDS = 15.0
"""A creation that nobody waits for any more may still make its sandbox; a name that is missing is asked for again so
long after the request was sent."""
_CONFIRM_SECONDS = 45.0
_PAGE = 100
_MAX_PAGES = 10_000
_CLOSE_SECONDS = 10.0
_OVER = frozenset({"TERMINATED"})
_WORDS = {"DEPLOYED": "running", "DELETING": "ending", "TERMINATED": "ended", "FAILED": "failed"}


class BlaxelProvider:
    """See the contract. ``environ``: the project's variables (``.env`` included); the process's own by default."""

    name = "blaxel"

    def __init__(
        self,
        project_dir: Path,
        settings: SandboxSettings | None = None,
        *,
        base_url: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._project_dir = project_dir.resolve()
        self._settings = settings or SandboxSettings(provider="blaxel")
        self._base_url = base_url
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._opening = asyncio.Lock()
        self._account: sdk.Account | None = None
        self._url: str | None = None
        self._memory: Memory | None = None
        self._certificates: ssl.SSLContext | None = None
        self._janitor = Janitor()
        self._connections: dict[str, Connection] = {}
        # Names that a creation under way may still make, and since when.
        self._doubtful: dict[str, float] = {}

    # -- what holds here ----------------------------------------------------------------------------------------

    async def probe(self) -> ProviderReport:
        """Look for credentials and ask the service whether it takes them; works on any event loop."""
        try:
            account, url = await self._find()
            await self._ask_once(account, url)
        except ProviderError as error:
            return ProviderReport(self.name, str(Isolation.REMOTE), (str(error),))
        warnings: list[str] = []
        if url is not None and url.startswith("http://") and not sdk.is_loopback(url):
            warnings.append(f"the Blaxel service at {url} gets the API key unencrypted")
        return ProviderReport(self.name, str(Isolation.REMOTE), (), tuple(warnings))

    async def _find(self) -> tuple[sdk.Account, str | None]:
        """Credentials and address. Raises ProviderError."""
        url = sdk.service_url(self._environ, self._base_url)
        await asyncio.to_thread(sdk.load)
        return await asyncio.to_thread(sdk.find_account, self._environ), url

    async def moved_from(self) -> str | None:
        """Where this project's sandboxes were made before, if that is elsewhere. Raises ProviderError."""
        account, url = await self._find()
        memory = await asyncio.to_thread(recall, self._project_dir)
        if memory is None or (memory.workspace, memory.url) == (account.workspace, url):
            return None
        return _place(memory.workspace, memory.url)

    async def _ask_once(self, account: sdk.Account, url: str | None) -> None:
        from blaxel.core.client.api.compute.list_sandboxes import asyncio_detailed
        from blaxel.core.client.models.error import Error
        from blaxel.core.sandbox import SandboxAPIError

        async def look() -> None:
            await account.refresh()
            client = sdk.own_client(account, url)
            try:
                answer = await asyncio_detailed(client=client, limit=1)
            finally:
                await client.get_async_httpx_client().aclose()
            if isinstance(answer.parsed, Error):
                status = int(answer.status_code)
                raise SandboxAPIError(str(answer.parsed.error), status_code=status, error=answer.parsed)

        await ask(f"looking at the workspace {account.workspace}", look, seconds=15.0, tries=3)

    async def _open(self, *, remembering: bool) -> None:
        """Connect once. Raises ProviderError."""
        async with self._opening:
            if self._account is None:
                account, self._url = await self._find()
                sdk.connect(account, self._url)
                self._account = account
            if remembering and self._certificates is None:
                self._certificates = await asyncio.to_thread(httpx.create_ssl_context)
            if self._memory is None:
                workspace, project = self._account.workspace, self._project_dir
                if remembering:
                    self._memory = await asyncio.to_thread(remember, project, workspace, self._url)
                else:
                    self._memory = await asyncio.to_thread(recall, project)
                    if self._memory is not None:
                        self._check_same_place(self._memory, workspace)
        await self._account.refresh()

    def _check_same_place(self, memory: Memory, workspace: str) -> None:
        """Elsewhere each of our sandboxes would look gone. Raises PermanentError."""
        if (memory.workspace, memory.url) == (workspace, self._url):
            return
        here, there = _place(workspace, self._url), _place(memory.workspace, memory.url)
        raise PermanentError(
            f"this project's Blaxel sandboxes are in {there}, but the settings here point to {here}: set BL_WORKSPACE "
            f"(and {sdk.URL_VARIABLE}) as they were"
        )

    # -- create -------------------------------------------------------------------------------------------------

    async def create(self, spec: SandboxSpec) -> Sandbox:
        name, labels = check_name(spec.name), check_labels(spec.labels)
        await self._open(remembering=True)
        assert self._memory is not None
        assert self._certificates is not None
        env = {**self._settings.env, **spec.env}
        wanted: dict[str, Any] = {
            "name": name,
            "labels": {**labels, LABEL_MARK: self._memory.mark},
            "ttl": _ttl(spec.ttl_seconds or self._settings.ttl_seconds or MIN_TTL_SECONDS),
            "memory": spec.memory_mb or self._settings.memory_mb,
        }
        if image := spec.image or self._settings.image:
            wanted["image"] = image
        if region := spec.region or self._settings.region:
            wanted["region"] = region
        if env:
            wanted["envs"] = [{"name": key, "value": value} for key, value in env.items()]
        box = await self._create(name, wanted)
        sdk.check_sandbox_url(box.process.url, self._url)
        connection = Connection(name, box, env, self._certificates, self._janitor)
        self._connections[name] = connection
        return BlaxelSandbox(connection)

    async def _create(self, name: str, wanted: dict[str, Any]) -> SandboxInstance:
        """Once: whoever tries again takes another name. Raises ProviderError."""
        from blaxel.core import SandboxInstance

        self._doubtful[name] = time.monotonic()
        # No ``timeout`` of the SDK's: it would build another client for each creation.
        try:
            box = await ask(
                f"creating the sandbox {name}",
                lambda: SandboxInstance.create(wanted),
                seconds=CREATE_SECONDS,
                tries=1,
            )
        except (QuotaError, RateLimited, CredentialsError, PermanentError):
            del self._doubtful[name]  # refused: there is nothing, and nothing will come
            raise
        del self._doubtful[name]
        status = str(box.status or "")
        if status in ENDED:
            raise TransientError(f"Blaxel made the sandbox {name}, but it is {status}")
        return box

    # -- release ------------------------------------------------------------------------------------------------

    async def release(self, name: str, *, settle_seconds: float = 0.0) -> Released:
        check_name(name)
        await self._open(remembering=False)
        since = self._doubtful.get(name)
        until = time.monotonic() + settle_seconds
        if since is not None:
            until = max(until, since + SETTLE_SECONDS)
        found = await self._delete(name)
        while not found and time.monotonic() < until:
            await asyncio.sleep(min(1.0, max(0.05, until - time.monotonic())))
            if await self._status(name) not in (None, *_OVER):
                found = await self._delete(name)
        if found:
            await self._confirm(name)
        self._doubtful.pop(name, None)
        connection = self._connections.pop(name, None)
        if connection is not None:
            await connection.close()
        return Released(name, ReleaseOutcome.RELEASED if found else ReleaseOutcome.ALREADY_GONE)

    async def _delete(self, name: str) -> bool:
        """Whether there was something to delete. Raises ProviderError."""
        from blaxel.core import SandboxInstance

        of_class: Any = SandboxInstance.delete  # typed as the instance's method, which takes no name

        async def delete() -> None:
            try:
                await of_class(name)
            except Exception as error:
                # A 409: it is being deleted already, and what is left is to wait for its end.
                if status_of(error) != 409:
                    raise

        try:
            await ask(f"deleting the sandbox {name}", delete)
        except SandboxGone:
            return False
        return True

    async def _confirm(self, name: str) -> None:
        """Wait until it is gone: an accepted deletion is not yet one. Raises TransientError."""
        deadline = time.monotonic() + _CONFIRM_SECONDS
        pause = 0.1
        while (status := await self._status(name)) not in (None, *_OVER):
            if time.monotonic() > deadline:
                raise TransientError(
                    f"the sandbox {name} is still {status} {_CONFIRM_SECONDS:.0f} s after its deletion"
                )
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 1.6)

    async def _status(self, name: str) -> str | None:
        """The service's word for its state; None where it has no such sandbox."""
        from blaxel.core import SandboxInstance

        try:
            box = await ask(f"looking for the sandbox {name}", lambda: SandboxInstance.get(name))
        except SandboxGone:
            return None
        return str(box.status or "")

    # -- list ---------------------------------------------------------------------------------------------------

    async def list(self, labels: Mapping[str, str] | None = None) -> list[ProviderSandbox]:
        """Those of this project, by its mark; also those without any of our labels whose name is one of ours."""
        await self._open(remembering=False)
        if self._memory is None:
            return []
        wanted = {**(labels or {}), LABEL_MARK: self._memory.mark}
        found: dict[str, ProviderSandbox] = {}
        for box in await self._all():
            name, status = str(box.metadata.name), str(box.status or "")
            carried = _labels(box)
            nameless = not carried and name.startswith(f"{NAME_PREFIX}-")
            if status not in _OVER and (nameless or has_labels(carried, wanted)):
                word = _WORDS.get(status, status.lower())
                found[name] = ProviderSandbox(name, carried, word, _created_at(box))
        return list(found.values())

    async def _all(self) -> list[SandboxInstance]:
        """Every page, before anything is deleted: deletions would shift the pages. Raises ProviderError."""
        from blaxel.core import SandboxInstance

        boxes: list[SandboxInstance] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await ask("listing sandboxes", partial(SandboxInstance.list, _PAGE, cursor))
            boxes.extend(page)
            if not page.has_more or not page.next_cursor or page.next_cursor == cursor:
                return boxes
            cursor = page.next_cursor
        raise PermanentError(f"Blaxel, listing sandboxes: no end after {_MAX_PAGES} pages")

    async def aclose(self) -> None:
        """Close every connection. Sandboxes that are left stay, until their ttl or ``cleanup``."""
        await self._janitor.finish(_CLOSE_SECONDS)
        for connection in list(self._connections.values()):
            await connection.close()
        self._connections.clear()
        if self._account is not None:
            self._account = None
            await sdk.disconnect()


def _ttl(seconds: float) -> str:
    """In whole minutes: the service takes no fractions, and nothing below five minutes."""
    return f"{math.ceil(max(seconds, MIN_TTL_SECONDS) / 60)}m"


def _labels(box: SandboxInstance) -> dict[str, str]:
    labels = getattr(box.metadata, "labels", None)
    to_dict = getattr(labels, "to_dict", None)
    table = to_dict() if callable(to_dict) else labels
    return {str(key): str(value) for key, value in table.items()} if isinstance(table, dict) else {}


def _created_at(box: SandboxInstance) -> float | None:
    text = getattr(box.metadata, "created_at", None)
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None


def _place(workspace: str, url: str | None) -> str:
    return f"the workspace {workspace}" + ("" if url is None else f" at {url}")
