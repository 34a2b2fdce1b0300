"""The held-out tasks of ``[eval]``: as valid as the training tasks, and none of them one of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.report import CheckReport, Severity
from engine.config.spending import EvalSettings
from engine.config.tasks import LoadedTask, load_tasks
from engine.episodes.contract import compares

if TYPE_CHECKING:
    from engine.checking.episode import LoadedEpisode
    from engine.project import Project

_KEY = "eval.tasks"
_SHOWN = 5


def load_held_out(project: Project, episode: LoadedEpisode) -> list[LoadedTask]:
    """Every held-out task. Raises ConfigError with all bad lines."""
    assert project.rl.eval is not None
    return load_tasks(project.rl.eval.tasks, episode.task_type)


def check_held_out(
    project: Project,
    episode: LoadedEpisode,
    tasks: list[LoadedTask],
    held_out: list[LoadedTask],
    report: CheckReport,
) -> None:
    """Report what an evaluation will be, and warn of tasks that are trained on as well."""
    settings = project.rl.eval
    assert settings is not None
    times = [
        when
        for when, wanted in (
            ("at the start", settings.at_start),
            (
                "every step" if settings.every_steps == 1 else f"every {settings.every_steps} steps",
                settings.every_steps is not None,
            ),
            ("at the end", settings.at_end),
        )
        if wanted
    ]
    each = "1 attempt" if settings.attempts_per_task == 1 else f"{settings.attempts_per_task} attempts"
    when = ", ".join(times) or "only when asked"
    often = times_evaluated(settings, project.rl.training.max_steps)
    report.lines.append(
        f"Held-out tasks: {len(held_out)}, {each} each; {when}{_in_all(often, held_out, settings)}"
    )
    if compares(episode.cls) and settings.attempts_per_task == 1:
        report.add(
            Severity.WARNING,
            project.loaded.problem(
                "eval.attempts_per_task",
                f"{episode.name} grades a task's attempts against each other, and an evaluation makes one of each",
                "Set [eval] attempts_per_task to [training] group_size",
            ),
        )
    asked = {task.asks for task in tasks}
    shared = [task.id for task in held_out if task.asks in asked]
    if shared:
        listed = ", ".join(shared[:_SHOWN]) + (", …" if len(shared) > _SHOWN else "")
        what = "1 held-out task is" if len(shared) == 1 else f"{len(shared)} held-out tasks are"
        report.add(
            Severity.WARNING,
            project.loaded.problem(
                _KEY,
                f"{what} trained on as well ({listed}): what is learned by heart would count as skill",
                "Take them out of one of the two files",
            ),
        )


def times_evaluated(settings: EvalSettings, max_steps: int) -> int:
    """How often a run that goes to its last step evaluates."""
    every = settings.every_steps
    between = max_steps // every if every is not None else 0
    last_is_one = every is not None and max_steps % every == 0
    return settings.at_start + between + (settings.at_end and not last_is_one)


def _in_all(often: int, held_out: list[LoadedTask], settings: EvalSettings) -> str:
    if not often:
        return ""
    attempts = often * len(held_out) * settings.attempts_per_task
    return f": {attempts:,} attempts in all, beside those of the estimate"
