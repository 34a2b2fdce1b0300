"""Evaluations on demand: of a live run's own weights by its host, of a checkpoint or the base model beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hosting.errors import BadRequest, HostingError
from engine.hosting.requests import request
from engine.hosting.weights import (
    WeightsAsked,
    WeightsInHand,
    require_episode,
    weights_in_hand,
    while_loops_lives,
)
from engine.loops.errors import LoopsError
from engine.recipes.evaluation.evaluator import Evaluator
from engine.recipes.evaluation.plan import EvalPlan, Weights, held_out_tasks
from engine.recipes.rl.parts import deadlines_of
from engine.store.rows import CommandState, EvalRow
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.episodes.contract import Task
    from engine.project import Project

LIVE_SECONDS = 24 * 3600.0
"""How long a live run's answer is waited for: the step in hand, and then the evaluation."""


async def evaluate(
    project_dir: Path,
    ref: str,
    *,
    checkpoint: str | None = None,
    base: bool = False,
    overrides: Sequence[str] = (),
    told: Callable[[str], None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> EvalRow:
    """Evaluate a run's weights on its config's held-out tasks and store it; nothing of it trains.

    Args:
        checkpoint: its name, its step, or "last". Without it and without ``base``: a live run's weights as they are
            after the step in hand, an ended run's last checkpoint.
        base: the base model that the run began with.
        overrides: of the config, such as ``eval.attempts_per_task=4``; a live run takes none.
        told, progress: sentences about what is opened and released, and how far it is.

    Raises:
        UnknownRun, CheckpointUnknown, HostingError, ConfigError, StoreError: with one sentence.
    """
    live = await asyncio.to_thread(_live, project_dir, ref)
    if live is not None and checkpoint is None and not base:
        if overrides:
            raise HostingError(
                f"run {live} is going on and evaluates by its own config; name a checkpoint to evaluate otherwise"
            )
        return await asyncio.to_thread(_ask, project_dir, live, told)
    name = None if base else checkpoint or "last"
    asked = WeightsAsked(run=ref, checkpoint=name, overrides=overrides)
    async with weights_in_hand(
        project_dir, asked, purpose="evaluation", with_sandboxes=True, ready=_held_out, told=told
    ) as weights:
        return await _evaluate(weights, told, progress)


def _live(project_dir: Path, ref: str) -> str | None:
    """The run's id if it is going on. Raises UnknownRun."""
    with Store.open(project_dir) as store:
        store.reconcile()
        run = store.reader().run(ref)
    return None if run.state.final else run.run_id


def _ask(project_dir: Path, run_id: str, told: Callable[[str], None]) -> EvalRow:
    """Have a live run's host evaluate between two steps."""
    with Store.open(project_dir) as store:
        before = {row.eval_id for row in store.reader().evals(run_id)}
        told(f"Run {run_id} is going on: its host evaluates after the step in hand …")
        command = request(store, run_id, "evaluate", timeout=LIVE_SECONDS)
        made = [
            row for row in store.reader().evals(run_id) if row.eval_id not in before and row.why == "asked"
        ]
    if command.state is not CommandState.DONE or not made:
        raise HostingError(f"run {run_id} did not evaluate: {command.answer or command.state}")
    return made[0]


def _held_out(project: Project) -> list[Task[Any]]:
    """The config's held-out tasks. Blocks. Raises BadRequest where it names none, ConfigError where they are wrong."""
    require_episode(project)
    settings = project.rl.eval
    if settings is None:
        raise BadRequest(
            f"the config {project.path.name} has no [eval]; name held-out tasks with --set eval.tasks=FILE"
        )
    return held_out_tasks(settings, project.episode().task_type)


async def _evaluate(
    weights: WeightsInHand, told: Callable[[str], None], progress: Callable[[str], None]
) -> EvalRow:
    project, run, point = weights.project, weights.run, weights.checkpoint
    assert run is not None
    episode = await asyncio.to_thread(project.episode)
    plan = EvalPlan.of(
        project.rl,
        tasks=await asyncio.to_thread(_held_out, project),
        episode=episode.cls,
        options=episode.options,
        deadlines=deadlines_of(project),
        renderer=weights.renderer,
        sandboxes=weights.sandboxes,
    )
    weights.sampler.use_sampling(plan.sampling)
    # A live run's host keeps its directory; two that append to one file would mix their lines.
    recorder = weights.store.recorder(run.run_id, files=run.state.final)

    def log(level: str, text: str) -> None:
        recorder.log(level, "eval", text)
        told(text)

    evaluator = Evaluator(
        plan, store=weights.store, recorder=recorder, host_id=weights.host_id, log=log, told=progress
    )
    named = Weights.base() if point is None else Weights(point.name, "checkpoint", point.step, point.name)
    try:
        return await while_loops_lives(weights.endpoint, evaluator.evaluate(weights.sampler, named, "asked"))
    except LoopsError as error:
        raise HostingError(str(error)) from error
    finally:
        await asyncio.shield(asyncio.to_thread(recorder.close))
