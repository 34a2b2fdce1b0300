"""The SDK, tamed: its import, its logging and its telemetry, and the one service that a process talks to.

The SDK keeps its credentials, its address and its client in module-level objects. So one process talks to one service
from one event loop at a time, and whoever wants another one meanwhile is refused instead of being mixed up.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from engine.importing import uncollected
from engine.sandboxes.errors import CredentialsError, PermanentError

if TYPE_CHECKING:
    from blaxel.core.authentication import BlaxelAuth
    from blaxel.core.client.client import Client

URL_VARIABLE = "LOOPS_TUI_BLAXEL_URL"
NEEDED = "Blaxel needs BL_WORKSPACE and BL_API_KEY in the environment or in a .env beside the training config"
CONTROL_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""Of one request to the control plane; the SDK itself would wait for ever."""

#: Loggers whose levels the SDK changes for the whole process.
_THEIR_LOGGERS = (
    "google_adk",
    "google_adk.google.adk.models.lite_llm",
    "LiteLLM",
    "LiteLLM Proxy",
    "LiteLLM Router",
    "openai",
    "openai._base_client",
    "httpx",
    "httpcore",
    "urllib3",
)
_importing = threading.Lock()
_imported = threading.Event()


def load() -> None:
    """Import the SDK without letting it change this process; takes a second or more, so call it in a thread.

    Its error reports and traces stay off for good, here and in child processes.
    """
    with _importing:
        if _imported.is_set():
            return
        os.environ["DO_NOT_TRACK"] = "1"  # anything else, even "", turns its error reports on
        os.environ["BL_ENABLE_OPENTELEMETRY"] = "false"  # it would replace the handlers of SIGINT and SIGTERM
        # One notice per process, meant for the author of a script: a region is the config's business.
        warnings.filterwarnings("ignore", message=r".*create: no region set", category=FutureWarning)
        with _logging_kept(), _log_level_known(), uncollected():
            import blaxel.core
        blaxel.core.settings.integration = "loops-tui/0.1.0"
        _imported.set()


@contextmanager
def _logging_kept() -> Iterator[None]:
    """The SDK gives a root logger without handlers one that writes to the terminal, and silences other libraries."""
    root, quiet = logging.getLogger(), logging.NullHandler()
    loggers = [logging.getLogger(name) for name in _THEIR_LOGGERS]
    levels = [(logger, logger.level) for logger in loggers]
    levels += [(handler, handler.level) for logger in loggers for handler in logger.handlers]
    root.addHandler(quiet)
    try:
        yield
    finally:
        root.removeHandler(quiet)
        for thing, level in levels:
            thing.setLevel(level)


@contextmanager
def _log_level_known() -> Iterator[None]:
    """The SDK's import fails where LOG_LEVEL holds a word that ``logging`` does not know."""
    level = os.environ.get("LOG_LEVEL")
    if level is None or level.upper() in logging.getLevelNamesMapping():
        yield
        return
    os.environ["LOG_LEVEL"] = "INFO"
    try:
        yield
    finally:
        os.environ["LOG_LEVEL"] = level


# -- which service, and as whom ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """Who we are. ``auth`` holds the key and is never shown."""

    workspace: str
    auth: BlaxelAuth

    def __repr__(self) -> str:
        return f"Account(workspace={self.workspace!r})"

    async def refresh(self) -> None:
        """Credentials other than an API key are renewed by blocking calls: here, in a thread, not in a request."""
        from blaxel.core.authentication.apikey import ApiKey

        if not isinstance(self.auth, ApiKey):
            await asyncio.to_thread(self.auth.get_headers)


def service_url(environ: Mapping[str, str], configured: str | None) -> str | None:
    """The control plane's address where it is not Blaxel's own: the variable beats ``[providers.blaxel] base_url``.

    Raises PermanentError for a variable that is no address.
    """
    named = (environ.get(URL_VARIABLE) or "").strip()
    if named and not named.startswith(("http://", "https://")):
        raise PermanentError(f"{URL_VARIABLE} must begin with http:// or https://, not {named[:80]!r}")
    url = named or configured
    return url.rstrip("/") if url else None


def find_account(environ: Mapping[str, str]) -> Account:
    """The credentials of ``environ``, or those that the SDK finds in the process or in ``~/.blaxel/config.yaml``.

    Reads files, so call it in a thread, after ``load``. Raises CredentialsError where they are not complete.
    """
    from blaxel.core import auth, get_credentials, settings
    from blaxel.core.authentication import CredentialsType, MissingCredentials
    from blaxel.core.authentication.apikey import ApiKey

    found = get_credentials()
    key = environ.get("BL_API_KEY")
    workspace = environ.get("BL_WORKSPACE") or (found.workspace if found is not None else None)
    if not workspace:
        raise CredentialsError(NEEDED)
    if key:
        credentials = CredentialsType(api_key=key, workspace=workspace)
        return Account(workspace, ApiKey(credentials, workspace, settings.base_url))
    known = auth(settings.env, settings.base_url)
    if isinstance(known, MissingCredentials):
        raise CredentialsError(NEEDED)
    return Account(workspace, known)


def is_loopback(url: str) -> bool:
    """Whether an address means this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_sandbox_url(url: str, base_url: str | None) -> None:
    """Our key is sent wherever a sandbox's record points: it must not leave the machine, nor lose its encryption.

    Raises PermanentError.
    """
    if base_url is not None and is_loopback(base_url):
        if not is_loopback(url):
            raise PermanentError(
                f"the Blaxel service at {base_url} names {_shown(url)} as a sandbox's address, which is not on this "
                "machine: nothing is sent there"
            )
    elif (base_url is None or base_url.startswith("https://")) and not url.startswith("https://"):
        raise PermanentError(
            f"Blaxel names {_shown(url)} as a sandbox's address, which is not encrypted: nothing is sent there"
        )


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or '?'}"[:120]


# -- one service at a time -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Use:
    """Who uses which service, from which event loop."""

    users: int = 0
    url: str | None = None
    workspace: str = ""
    loop: asyncio.AbstractEventLoop | None = None


_use = _Use()
_using = threading.Lock()


def connect(account: Account, url: str | None) -> None:
    """Point the SDK at a service; to be called on the event loop that will use it, once for each ``disconnect``.

    Raises PermanentError while another part of the process uses another service, or another event loop.
    """
    from blaxel.core import client, settings

    loop = asyncio.get_running_loop()
    with _using:
        abandoned = _use.loop is not None and _use.loop.is_closed()
        if _use.users == 0 or abandoned:
            _use.users, _use.url, _use.workspace, _use.loop = 0, url, account.workspace, loop
        elif (_use.url, _use.workspace, _use.loop) != (url, account.workspace, loop):
            at = f" at {_use.url}" if _use.url else ""
            raise PermanentError(
                f"this process already uses Blaxel (workspace {_use.workspace}{at}); start this in a process of its "
                "own, such as loops-tui run --detach"
            )
        _use.users += 1
        settings.auth = account.auth
        client.with_base_url(url or settings.base_url)
        client.with_auth(account.auth)
        client.with_timeout(CONTROL_TIMEOUT)
        if url is not None and is_loopback(url):
            _spare_proxies()


async def disconnect() -> None:
    """Let go of the service; the last one to do so closes the SDK's own client."""
    from blaxel.core import client

    with _using:
        _use.users = max(0, _use.users - 1)
        if _use.users:
            return
        _use.loop = None
    shared = client.get_async_httpx_client()
    client.set_async_httpx_client(None)  # type: ignore[arg-type]  # a closed one must not be used again
    await shared.aclose()


def own_client(account: Account, url: str | None) -> Client:
    """A control-plane client beside the SDK's shared one, for any event loop; close its httpx client afterwards."""
    from blaxel.core import settings
    from blaxel.core.client.client import Client

    return Client(
        base_url=url or settings.base_url,
        auth=account.auth,
        headers={"Blaxel-Version": settings.api_version, "User-Agent": settings.user_agent},
        timeout=CONTROL_TIMEOUT,
    )


def _spare_proxies() -> None:
    """A proxy of the environment cannot reach this machine's own server."""
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        missing = [host for host in ("127.0.0.1", "localhost") if host not in hosts]
        if missing and (hosts or name == "NO_PROXY"):
            os.environ[name] = ",".join([*hosts, *missing])
