"""The tasks that are trained on: how often a run comes to each, and whether some are there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.problems import Problem
from engine.config.report import CheckReport, Severity
from engine.config.tasks import LoadedTask

if TYPE_CHECKING:
    from engine.project import Project

_SHOWN = 5


def check_training_tasks(project: Project, tasks: list[LoadedTask], report: CheckReport) -> None:
    """Report the passes over the tasks, and warn of tasks that differ in their names alone."""
    training, file = project.rl.training, project.rl.runtime.config.tasks
    groups = training.max_steps * training.groups_per_step
    report.lines.append(f"Passes over the tasks: {_passes(groups / len(tasks))} ({groups:,} groups)")
    first: dict[str, LoadedTask] = {}
    again = [task for task in tasks if first.setdefault(task.asks, task) is not task]
    if not again:
        return
    listed = ", ".join(f"{task.line} as {first[task.asks].line}" for task in again[:_SHOWN])
    more = ", …" if len(again) > _SHOWN else ""
    what = "1 task is" if len(again) == 1 else f"{len(again)} tasks are"
    report.add(
        Severity.WARNING,
        Problem(
            f"{what} there already but for the name (line {listed}{more}): it is trained on that much more often",
            file=file,
            line=again[0].line,
            remedy="Keep one of each, unless that is meant",
        ),
    )


def _passes(passes: float) -> str:
    return f"{passes:,.0f}" if passes >= 10 else f"{passes:.2g}"
