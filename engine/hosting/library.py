"""Training from a Python program: ``Project.train()``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from engine.hosting.host import RunHost, Train
from engine.hosting.local_server import LocalServer
from engine.hosting.prepare import require_sound
from engine.hosting.resuming import require_resumable, resumed_by
from engine.recipes.contract import Outcome, RunFailed
from engine.recipes.control import RunControl
from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.project import Project


async def train(
    project: Project,
    *,
    project_dir: Path | None = None,
    control: RunControl | None = None,
    recipe: Train | None = None,
    resume: str | None = None,
) -> Outcome:
    """Check a project and train it to its end on the calling loop.

    Args:
        project_dir: where the store lies (``.loops``); the project's working directory unless given.
        control: to stop, pause or abort the run from another task or thread.
        recipe: a training loop instead of the config's own.
        resume: go on with this run of the project's store (an id, a run directory, a unique beginning of either) from
            its last checkpoint, with the settings of this project. What its curve depends on must not differ.

    Raises:
        CheckFailed: the check found errors; nothing was started.
        HostingError: the run to resume cannot go on.
        RunFailed: the run failed; the message is one sentence.
        StoreError: the store cannot be used.
    """
    directory = project_dir or project.working_dir
    server = LocalServer(directory)
    try:
        resumption = await asyncio.to_thread(resumed_by, project, resume, directory) if resume else None
        await require_sound(project, directory, server)
        if resumption is not None:
            await require_resumable(project, resumption, directory)
        host = RunHost(
            project,
            directory,
            server,
            kind="library",
            control=control,
            train=recipe,
            resumption=resumption,
        )
        await asyncio.to_thread(host.begin)
        run = await host.run()
    finally:
        await asyncio.shield(asyncio.to_thread(server.close))
    if run.state is RunState.FAILED:
        raise RunFailed(run.error or "the run failed")
    return Outcome(run.state, run.step, run.reward_first, run.reward_last, run.loops_run_id)
