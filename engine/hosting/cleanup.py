"""Release what dead processes left behind: the public face of the sandboxes' cleanup for app and commands."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.environment import read_env_files
from engine.config.problems import ConfigError
from engine.config.spending import BlaxelSettings
from engine.sandboxes.blaxel.memory import Memory, recall
from engine.sandboxes.cleanup import CleanupEntry, CleanupReport, cleanup
from engine.sandboxes.contract import Provider
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import open_provider
from engine.sandboxes.local.provider import LocalProvider
from engine.sandboxes.settings import SandboxSettings
from engine.store.errors import UnknownRun
from engine.store.leases import OPEN_STATES
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.store.rows import RunRow

__all__ = [
    "CleanupEntry",
    "CleanupReport",
    "release_left_behind",
    "run_of_directory",
    "runs_meant",
]

log = logging.getLogger(__name__)

_LOCAL, _BLAXEL = "local", "blaxel"
_ALL_RUNS = 1_000_000


async def release_left_behind(
    project_dir: Path,
    *,
    runs: Collection[str] | None = None,
    names: Collection[str] = (),
    force: bool = False,
    dry_run: bool = False,
) -> CleanupReport:
    """Release every sandbox that may exist and that no living process holds, confirmed; safe to repeat.

    Args:
        runs: only those of these runs, by their full ids; None: everything of the project.
        names: only these sandboxes.
        force: the named ones go even where a living process holds them.
        dry_run: change nothing; ``released`` of the report lists what would be tried.

    Must run on a loop of its own process's engine or of a command, never on a screen's. A provider's failure is in
    the report. Raises StoreError.
    """
    had_store = Store.exists(project_dir)
    if not had_store and not await _traces(project_dir):
        return CleanupReport(dry_run)  # nobody has run anything here, and no store is made
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        await asyncio.to_thread(store.reconcile)
        providers, missing = await asyncio.to_thread(_providers, store, project_dir)
        try:
            report = await cleanup(
                store,
                project_dir,
                runs,
                dry_run=dry_run,
                names=names,
                force=force,
                providers=providers,
                journal_lost=not had_store,
            )
        finally:
            await asyncio.gather(*(provider.aclose() for provider in providers.values()))
    finally:
        await asyncio.to_thread(store.close)
    report.failed = [
        replace(entry, detail=missing[entry.provider]) if entry.provider in missing else entry
        for entry in report.failed
    ]
    return report


async def _traces(project_dir: Path) -> bool:
    """Whether there may be sandboxes of the project: they outlive a store that was removed."""
    try:
        if await asyncio.to_thread(recall, project_dir) is not None:
            return True
    except SandboxError:
        return True  # what cannot be read is said later
    local = LocalProvider(project_dir)
    try:
        return bool(await local.list())
    finally:
        await local.aclose()


def _providers(store: Store, project_dir: Path) -> tuple[dict[str, Provider], dict[str, str]]:
    """The providers that may have sandboxes of this project, and of those that cannot be used here why.

    Those that open leases name, and Blaxel wherever the project has ever used it: there may be some that no lease
    names. Credentials of a ``.env`` in the project directory count.
    """
    wanted = {row.provider for row in store.reader().leases(states=OPEN_STATES)} - {_LOCAL}
    usable: dict[str, Provider] = {}
    missing: dict[str, str] = {}
    for name in sorted(wanted - {_BLAXEL}):
        missing[name] = f"the provider {name} is not set up here"
        log.warning("sandboxes of %s cannot be released from here", name)
    try:
        memory = recall(project_dir)
        if memory is not None or _BLAXEL in wanted:
            values, _ = read_env_files([project_dir / ".env"])
            usable[_BLAXEL] = _blaxel(project_dir, memory, {**values, **os.environ})
    except (SandboxError, ConfigError) as error:
        if _BLAXEL in wanted:
            missing[_BLAXEL] = str(error)
        log.warning("sandboxes of Blaxel cannot be looked for from here: %s", error)
    return usable, missing


def _blaxel(project_dir: Path, memory: Memory | None, environ: Mapping[str, str]) -> Provider:
    """Raises SandboxError where there are no credentials."""
    # Its HTTP client costs half a second, which whoever never had such a sandbox need not wait.
    from engine.sandboxes.blaxel import sdk

    sdk.load()
    sdk.find_account(environ)
    known = BlaxelSettings.model_validate({"base_url": memory.url if memory is not None else None})
    return open_provider(project_dir, SandboxSettings(provider=_BLAXEL), blaxel=known, environ=environ)


def runs_meant(store: Store, config: Path | str, working_dir: Path) -> Sequence[RunRow]:
    """Every run of a config: those of its name, and those that were started from its file.

    A config that cannot be loaded any more still finds the runs that were started from it.
    Raises ConfigError where it has no runs and cannot be loaded, UnknownRun where it can but has none.
    """
    from engine.hosting.prepare import load_project
    from engine.project import ConfigError

    rows = store.reader().runs(_ALL_RUNS)
    path = str((working_dir / os.path.expanduser(config)).absolute())
    failure: ConfigError | None = None
    name = None
    try:
        project = load_project(config, (), working_dir)
        name, path = project.name, str(project.path)
        project.close()
    except ConfigError as error:
        failure = error
    found = [row for row in rows if row.name == name or row.config_path == path]
    if found:
        return found
    if failure is not None:
        raise failure
    raise UnknownRun(f"{config} has no runs in this project's store (none is called {name!r})")


def run_of_directory(store: Store, directory: Path | str, working_dir: Path) -> RunRow:
    """The run whose directory this is, or lies above it, such as its ``state``; what lies below need not exist.

    Raises UnknownRun.
    """
    place = (working_dir / os.path.expanduser(directory)).absolute()
    runs: dict[Path, RunRow] = {}
    for row in store.reader().runs(_ALL_RUNS):
        runs[Path(row.run_dir)] = runs[Path(row.run_dir).resolve()] = row
    for candidate in dict.fromkeys((place, *place.parents, place.resolve(), *place.resolve().parents)):
        if candidate in runs:
            return runs[candidate]
    raise UnknownRun(f"{directory} belongs to no run of this project; `loops-tui runs` lists them")
