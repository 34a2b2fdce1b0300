"""The app with a run in it that trains and, beside that, writes a thousand events a second:
``python -m tests.bench.busy_app DIR CONFIG``."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from engine.hosting.runs_here import RunsHere
from engine.project import Project
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.rl.run import train
from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState
from loops_tui.app import LoopsApp
from loops_tui.link import HereLazily, open_store
from loops_tui.session import run_app

RATE = 1000
EVERY_SECONDS = 0.01
GROUP = 9000  # far from the run's own
GROUPS, ATTEMPTS = 8, 8
_COURSE = (
    AttemptState.PROVISIONING, AttemptState.SETUP, AttemptState.SAMPLING, AttemptState.ACTING, AttemptState.GRADING,
)  # fmt: skip


async def busy(project: Project, handle: RunHandle) -> Outcome:
    """The real recipe, with a writer at its side."""
    writing = asyncio.create_task(_write(handle))
    try:
        return await train(project, handle)
    finally:
        writing.cancel()


async def _write(handle: RunHandle) -> None:
    recorder = handle.recorder
    for group in range(GROUPS):
        recorder.group(GroupRow(handle.run_id, GROUP + group, GroupState.RUNNING, "busy", 0))
    began, written = time.monotonic(), 0
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        due = int((time.monotonic() - began) * RATE)
        for number in range(written, due):
            if number % 20 == 0:
                recorder.log("info", "bench", f"event {number}")
                continue
            group, attempt = divmod(number % (GROUPS * ATTEMPTS), ATTEMPTS)
            state = _COURSE[number // (GROUPS * ATTEMPTS) % len(_COURSE)]
            recorder.attempt(
                AttemptRow(
                    handle.run_id, GROUP + group, attempt, state, turns=number % 9, sampled_tokens=number
                )
            )
        written = due


class BusyHosting(HereLazily):
    def _made(self) -> RunsHere:
        if self._runs is None:
            self._runs = RunsHere(self._project_dir, train=busy)
        return self._runs


if __name__ == "__main__":
    project_dir = Path(sys.argv[1])
    app = LoopsApp(
        project_dir,
        lambda: open_store(project_dir),
        lambda: BusyHosting(project_dir),
        start=Path(sys.argv[2]),
        overrides=["training.max_steps=100000"],
    )
    sys.exit(run_app(app))
