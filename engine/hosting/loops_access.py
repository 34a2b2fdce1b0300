"""Reaching the Loops service of a run from outside it: its address, its key, and the local server where that is it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from engine.config.environment import read_env_files
from engine.hosting.errors import HostingError
from engine.hosting.local_server import LocalServer
from engine.loops.errors import LoopsError
from engine.loops.management import LoopsManagement
from engine.recipes.contract import LoopsEndpoint
from engine.store.rows import RunRow

LOCAL = "local"


def environment(project_dir: Path, config: Path | None = None) -> Mapping[str, str]:
    """This process's variables over those of the ``.env`` beside a config and in the project directory.

    Raises ConfigError where a file cannot be read.
    """
    files = [project_dir / ".env"]
    if config is not None:
        files.insert(0, config.resolve().parent / ".env")
    values, _ = read_env_files(files)
    return {**values, **os.environ}


@asynccontextmanager
async def local_loops(project_dir: Path) -> AsyncIterator[LoopsEndpoint]:
    """The project's own server, started where it is not up, and let go of afterwards. Raises HostingError."""
    server = LocalServer(project_dir)
    try:
        address = await asyncio.to_thread(server.start)
        yield LoopsEndpoint(LOCAL, address.url, address.key)
    finally:
        await asyncio.shield(asyncio.to_thread(server.close))


def remote_loops(environ: Mapping[str, str], scope: str, url: str | None = None) -> LoopsEndpoint:
    """Baseten, or whatever service the variables name. Raises HostingError without a key."""
    key = environ.get("BASETEN_API_KEY", "").strip()
    if not key:
        raise HostingError(
            "BASETEN_API_KEY is not set: set it in the environment, or in a .env file beside the config or in the "
            "project directory"
        )
    return LoopsEndpoint(scope, url or environ.get("LOOPS_BASE_URL") or None, key)


@asynccontextmanager
async def loops_of(project_dir: Path, run: RunRow) -> AsyncIterator[LoopsEndpoint]:
    """The service that a run is or was on. Raises HostingError or ConfigError."""
    if run.scope == LOCAL:
        async with local_loops(project_dir) as endpoint:
            yield endpoint
        return
    yield remote_loops(environment(project_dir, Path(run.config_path)), run.scope, run.loops_url)


@asynccontextmanager
async def asking_loops(project_dir: Path, run: RunRow) -> AsyncIterator[LoopsManagement]:
    """A run's service, to ask things of; what Loops raises becomes HostingError. Raises ConfigError as well."""
    try:
        async with (
            loops_of(project_dir, run) as endpoint,
            LoopsManagement(endpoint.url, endpoint.api_key) as loops,
        ):
            yield loops
    except LoopsError as error:
        raise HostingError(str(error)) from error


def has_local_runs(project_dir: Path) -> bool:
    """Whether the project's own server has ever had a run."""
    directory = LocalServer(project_dir).directory / "runs"
    return directory.is_dir() and any(directory.iterdir())
