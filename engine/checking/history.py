"""What the store knows of a config: how its earlier runs went, and whether one is going right now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.checking.bounded import run_bounded
from engine.config.problems import Problem
from engine.config.report import CheckReport, Severity
from engine.config.sft import SftSettings
from engine.store.errors import StoreError
from engine.store.measured import Measured
from engine.store.rows import FINAL_STATES, RunState

if TYPE_CHECKING:
    from engine.project import Project

READ_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class History:
    """``measured``: None before a run of this config has finished a step. ``live``: ids of runs that are going on, of
    this config or of another one with the same output."""

    measured: Measured | None = None
    live: tuple[str, ...] = ()


async def read_history(project: Project, report: CheckReport) -> History:
    """Read the project's store, if there is one; what keeps it from being read is a warning."""
    try:
        history = await run_bounded(lambda: _read(project), READ_SECONDS)
    except (StoreError, TimeoutError) as error:
        said = str(error) or f"the store was not read within {READ_SECONDS:.0f} s"
        report.add(Severity.WARNING, Problem(f"the earlier runs could not be read: {said}"))
        return History()
    for run_id in history.live:
        report.add(
            Severity.WARNING,
            project.loaded.problem(
                "output.name",
                f"a run of this config, or of one with the same output, is going on already: {run_id}",
                "Watch or stop that one, or go on: another run gets a directory of its own",
            ),
        )
    return history


def _read(project: Project) -> History:
    from engine.store.store import Store

    if not Store.exists(project.working_dir):
        return History()
    config = str(project.path)
    with Store.open(project.working_dir) as store:
        reader = store.reader()
        hosts = reader.live_hosts(time.time())
        going = reader.runs(states=[state for state in RunState if state not in FINAL_STATES])
        live = [
            run.run_id
            for run in going
            if run.host_id in hosts
            and (run.config_path == config or Path(run.run_dir).parent == project.runs_dir)
        ]
        measured = reader.measured(
            config,
            base_model=project.config.model.base_model,
            scope=str(project.scope),
            group_size=0 if isinstance(project.config, SftSettings) else project.rl.training.group_size,
            max_steps=project.config.training.max_steps or 0,
        )
        return History(measured, tuple(live))
