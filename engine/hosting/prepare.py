"""From a config's path to a run that may start: load, check, and keep the report."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.hosting.errors import CheckFailed
from engine.store.errors import StoreError
from engine.store.redact import secret_values
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.config.report import CheckReport
    from engine.hosting.local_server import LocalServer
    from engine.project import Project
    from engine.recipes.contract import LoopsEndpoint

PROGRESS_SECONDS = 3.0
"""How often a check that takes long says how far it is."""
UNSAVED = "Checked: the text in the editor, which is not saved."


def load_project(
    config: Path | str, overrides: Sequence[str], project_dir: Path, text: str | None = None
) -> Project:
    """Load a config for a project directory: overrides and outputs are relative to that. Raises ConfigError.

    ``text`` counts instead of what the file says.
    """
    from engine.project import load  # pydantic, tomlkit: not before somebody needs a config

    return load(config, list(overrides), working_dir=project_dir, dotenv=True, text=text)


async def check_project(
    project: Project, project_dir: Path, told: Callable[[str], None] = lambda _: None
) -> CheckReport:
    """Check a project and store the report, which says so where it cannot be stored. ``told`` hears how far it is."""
    report = await project.check(told=told, local=partial(_own_server, project_dir))
    await _keep_or_tell(project, project_dir, report)
    return report


async def check_config(
    config: Path | str, overrides: Sequence[str], project_dir: Path, text: str | None = None
) -> CheckReport:
    """Load and check a config, or the ``text`` that an editor holds of it, and store the report.

    A config that cannot be loaded has a report as well. Raises StoreError where it cannot be stored.
    """
    from engine.config.loading import find_config
    from engine.config.problems import ConfigError
    from engine.config.report import CheckReport

    try:
        project = await asyncio.to_thread(load_project, config, overrides, project_dir, text)
    except ConfigError as error:
        report = CheckReport.of_refused(error.problems)
        path = find_config(config, project_dir)
        await asyncio.to_thread(keep_report, path, os.environ, project_dir, report)
        return report
    try:
        report = await project.check(local=partial(_own_server, project_dir))
        if text is not None:
            report.lines.insert(0, UNSAVED)
        await asyncio.to_thread(keep_report, project.path, project.environ, project_dir, report)
    finally:
        project.close()
    return report


async def require_sound(
    project: Project,
    project_dir: Path,
    server: LocalServer,
    told: Callable[[str], None] = lambda _: None,
) -> CheckReport:
    """Check, and refuse a project with errors; warnings go to ``told``. Raises CheckFailed.

    The local server comes up meanwhile, where the run will need it.
    """
    if project.scope == "local":
        warming = asyncio.create_task(asyncio.to_thread(server.start))
        # A failure is met again, and told, by the run that needs the server.
        warming.add_done_callback(lambda task: task.cancelled() or task.exception())
    report = await check_project(project, project_dir, now_and_then(told))
    if not report.ok:
        raise CheckFailed(report)
    for finding in report.findings:
        if finding.severity == "warning":
            told(str(finding))
    return report


def _own_server(project_dir: Path) -> AbstractAsyncContextManager[LoopsEndpoint]:
    """The project's own Loops server, for a check that has to ask it for something."""
    from engine.hosting.loops_access import local_loops  # brings httpx, which most checks can do without

    return local_loops(project_dir)


def now_and_then(told: Callable[[str], None]) -> Callable[[str], None]:
    """``told``, but of what comes often only one every PROGRESS_SECONDS, and nothing before the first are over."""
    said_at = time.monotonic()

    def tell(how_far: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= PROGRESS_SECONDS:
            said_at = time.monotonic()
            told(how_far)

    return tell


async def _keep_or_tell(project: Project, project_dir: Path, report: CheckReport) -> None:
    """Store the report. Where that fails no run could begin either, and the report, which cost time, says so."""
    from engine.checking.check import refuse
    from engine.config.problems import Problem

    try:
        await asyncio.to_thread(keep_report, project.path, project.environ, project_dir, report)
    except StoreError as error:
        if report.ok:
            remedy = "Mend it, or start in another working directory"
            refuse(
                report,
                Problem(f"the project's store cannot be written, and a run needs it: {error}", remedy=remedy),
            )


def keep_report(config: Path, environ: Mapping[str, str], project_dir: Path, report: CheckReport) -> None:
    """Store the report on a config, without the secrets of ``environ``. Raises StoreError."""
    path = os.path.normpath(config)
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise StoreError("the path of the config is not UTF-8 text") from error
    stored = report.to_json()
    with Store.open(project_dir) as store:
        store.redactor.add(secret_values(environ))
        store.add_check(path, ok=report.ok, findings=stored["findings"], lines=stored["lines"])
