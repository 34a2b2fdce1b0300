"""One check: every subject looked at, all findings in one report, nothing started."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.checking.bounded import run_bounded
from engine.checking.estimate import check_estimate, turn_limit
from engine.checking.held_out import check_held_out, load_held_out
from engine.checking.history import read_history
from engine.checking.models import check_local_model, check_loops_model
from engine.checking.open_files import check_open_files
from engine.checking.output import check_output
from engine.checking.rendering import check_rendering
from engine.checking.sandboxes import check_sandboxes
from engine.checking.starting import Reach, check_start, reach_baseten
from engine.checking.training_tasks import check_training_tasks
from engine.config.billing import billed
from engine.config.doubts import config_doubts
from engine.config.problems import ConfigError, Problem
from engine.config.report import CheckReport, Severity
from engine.config.sft import SftSettings

if TYPE_CHECKING:
    from engine.checking.episode import LoadedEpisode
    from engine.project import Project

_SMALLER = "Make the file smaller, or what validates its lines quicker"
#: What a check reads of the user's, how many seconds that may take, and what helps where it takes longer.
_BOUNDS: dict[str, tuple[str, float, str]] = {
    "runtime.config.episode": (
        "importing the episode", 60.0, "A module should define things when it is imported, and do nothing"),
    "runtime.config.tasks": ("reading the tasks", 300.0, _SMALLER),
    "eval.tasks": ("reading the held-out tasks", 300.0, _SMALLER),
}  # fmt: skip

CHECKED = "Configuration and runtime checked; no sandbox or Loops trainer launched."
CHECKED_WITHOUT_LOOPS = (
    "Configuration and runtime checked; Loops was not asked, no sandbox or Loops trainer launched."
)


async def check(
    project: Project,
    *,
    loops: bool = True,
    told: Callable[[str], None] = lambda _: None,
    local: Reach | None = None,
) -> CheckReport:
    """The report on ``project``. The order of the lines is that of a run: model, runtime, renderer, training.

    ``told`` hears how far a check is that takes long, from any thread. ``local`` reaches the project's own Loops
    server; without it nobody is asked whether the checkpoint is there that a local run would begin with.
    """
    report = CheckReport()
    for doubt in project.loaded.env_doubts:
        report.add(Severity.WARNING, doubt)
    for doubt in config_doubts(project.config, project.scope):
        report.add(Severity.WARNING, project.loaded.problem(doubt.key or "", doubt.text, doubt.remedy))
    if project.scope == "local":
        check_local_model(project, report)
        await check_start(project, report, local)
    else:
        if loops:
            await check_loops_model(project, report)
        await check_start(project, report, reach_baseten(project) if loops and report.ok else None)
    if isinstance(project.config, SftSettings):
        from engine.checking.sft import check_data  # numpy, which no other check needs

        await check_data(project, report, told)
        await read_history(project, report)
    else:
        await _check_rl(project, report)
    check_output(project, report)
    report.lines += [f"Billing: {sentence}" for sentence in billed(project.config, project.scope)]
    report.findings.sort(key=lambda finding: finding.severity is not Severity.ERROR)
    report.lines.append(_closing(report, asked=loops or project.scope == "local"))
    return report


async def _check_rl(project: Project, report: CheckReport) -> None:
    episode = await _attempt(project, report, "runtime.config.episode", project.episode)
    if episode is not None:
        tasks = await _attempt(project, report, "runtime.config.tasks", project.tasks)
        if tasks is not None:
            report.lines.append(f"Runtime: {project.rl.runtime.factory}; tasks: {len(tasks)}")
            check_training_tasks(project, tasks, report)
        if project.rl.eval is not None:
            load = functools.partial(load_held_out, project, episode)
            held_out = await _attempt(project, report, "eval.tasks", load)
            if held_out is not None:
                check_held_out(project, episode, tasks or [], held_out, report)
        report.lines.append(_capabilities(project, episode))
    from engine.episodes.contract import grades_apart

    await check_sandboxes(project, report, apart=episode is not None and grades_apart(episode.cls))
    if episode is not None and project.rl.runtime.config.sandbox is None:
        _check_no_sandbox(project, episode, report)
    check_open_files(project, report)
    if not any(finding.key == "model.base_model" for finding in report.findings):
        await check_rendering(project, report)  # the tokenizer of a model that is not there says nothing
    options = episode.options if episode is not None else None
    report.lines += [*_training_lines(project), *_context_lines(project, turn_limit(options))]
    history = await read_history(project, report)
    check_estimate(project, options, sum(_phases(project).values()), history.measured, report)


def _check_no_sandbox(project: Project, episode: LoadedEpisode, report: CheckReport) -> None:
    from engine.checking.episode import asks_for_sandbox

    if (method := asks_for_sandbox(episode.cls)) is not None:
        text = f"{episode.name}.{method}() asks for a sandbox, and the config gives its attempts none"
        remedy = "Add [runtime.config.sandbox]"
        report.add(Severity.WARNING, project.loaded.problem("runtime.config.episode", text, remedy))


async def _attempt[ResultT](
    project: Project, report: CheckReport, key: str, work: Callable[[], ResultT]
) -> ResultT | None:
    """The result of ``work`` on what ``key`` names, or None with its problems in the report."""
    doing, seconds, remedy = _BOUNDS[key]
    try:
        return await run_bounded(work, seconds)
    except ConfigError as error:
        for problem in error.problems:
            whole = problem.file is not None and problem.line is None  # about a file that the config names
            text = f"{problem.file}: {problem.text}"
            placed = project.loaded.problem(key, text, problem.remedy) if whole else problem
            report.add(Severity.ERROR, placed)
    except TimeoutError:
        report.add(
            Severity.ERROR, project.loaded.problem(key, f"{doing} took longer than {seconds:.0f} s", remedy)
        )
    return None


def _capabilities(project: Project, episode: LoadedEpisode) -> str:
    from engine.episodes.contract import compares

    cls, name = episode.cls, episode.name
    # What the runtime has to hold for an attempt: the policy while it samples, a sandbox from setup to grading.
    phases = "sampling" if project.rl.runtime.config.sandbox is None else "setup, sampling, grading"
    return (
        f"Capabilities: model access {cls.model_access} ({name}.model_access); runtime-acquired phases {phases}; "
        f"grading retries {cls.grading_retries} ({name}.grading_retries); group grading {str(compares(cls)).lower()}"
    )


def _phases(project: Project) -> dict[str, float]:
    """How long each phase of an attempt may take, in seconds."""
    runtime = project.rl.runtime.config
    phases = {
        "setup": runtime.setup_timeout_seconds,
        "agent": runtime.agent_timeout_seconds,
        "grading": runtime.grading_timeout_seconds,
    }
    return phases if runtime.sandbox is None else {"sandbox": runtime.provision_timeout_seconds, **phases}


def _training_lines(project: Project) -> list[str]:
    training, phases = project.rl.training, _phases(project)
    clock = " + ".join(f"{name} {seconds:g}" for name, seconds in phases.items())
    delta = f"{project.rl.max_policy_delta_in_trajectory} within an attempt"
    age = f" (at most {_count(project.rl.max_steps_off_policy, 'update')} off policy, {delta})"
    ahead = project.rl.setups_ahead
    return [
        f"Mode: {training.mode}{age if training.mode == 'async' else ''}; batch: {training.groups_per_step} × {training.group_size}",
        f"Loss: {training.loss}",
        f"Loss aggregation: {training.loss_aggregation}",
        f"Rollout clock: {sum(phases.values()):g}s ({clock})",
        f"Concurrency: {project.rl.max_concurrent_rollouts} sampling{f' (+{ahead} started ahead)' if ahead else ''}; "
        f"{project.rl.max_concurrent_grading} grading",
        "Producers: main (trainable); every model call uses it",
    ]


def _context_lines(project: Project, turns: int | None) -> list[str]:
    """How many of the longest replies a conversation holds, where its episode allows more of them."""
    length, longest = project.rl.model.max_seq_len, project.rl.sampling.max_tokens
    if turns is None or turns * longest < length:
        return []
    held = f"{length // longest} of the {turns} replies that the options allow"
    return [f"Context: {length:,} tokens hold at most {held}, at max_tokens = {longest:,} each"]


def refuse(report: CheckReport, problem: Problem) -> None:
    """Add an error that was met once the check was done."""
    report.add(Severity.ERROR, problem)
    report.findings.insert(0, report.findings.pop())
    report.lines[-1] = _closing(report, asked=True)


def _closing(report: CheckReport, *, asked: bool) -> str:
    errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
    if errors:
        return f"Not ready: {_count(errors, 'error')}; no sandbox or Loops trainer launched."
    return CHECKED if asked else CHECKED_WITHOUT_LOOPS


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
