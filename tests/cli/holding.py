"""``loops-tui`` with a recipe that holds three real sandboxes until it is told to stop: ``python -m tests.cli.holding run …``.

Prints ``holding RUN`` on standard error once it holds them.
"""

from __future__ import annotations

import functools
import sys

from engine.hosting import headless
from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.rows import RunState
from loops_tui import cli
from tests.hosting.driver import _sound
from tests.hosting.stand_ins import AddressOnly

HELD = 3


async def holding(project: Project, handle: RunHandle) -> Outcome:
    assert handle.store is not None
    handle.recorder.run(state=RunState.RUNNING)
    sandboxes = await RunSandboxes.open(
        handle.store,
        project.working_dir,
        SandboxSettings(disk_mb=8, memory_mb=128),
        attempt_seconds=60.0,
        run_id=handle.run_id,
        host_id=handle.host_id,
    )
    try:
        for attempt in range(HELD):
            leased = await sandboxes.source(4, attempt, lambda *_: None).acquire()
            await leased.sandbox.exec("setsid sleep 1003 & echo work > file", timeout=60)
        await handle.recorder.flush()
        print(f"holding {handle.run_id}", file=sys.stderr, flush=True)
        seen = handle.control.wishes
        while not handle.control.stopping:
            seen = await handle.control.wait_changed(seen)
    finally:
        await sandboxes.close()
    return Outcome(RunState.STOPPED, 0)


if __name__ == "__main__":
    headless.require_sound = _sound
    headless.LocalServer = AddressOnly
    headless.run_headless = functools.partial(headless.run_headless, train=holding)
    cli.main()
