"""Where a run's first weights come from: is the checkpoint there, and is it one of this model and rank?"""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.report import CheckReport, Severity
from engine.config.sections import ModelSettings
from engine.recipes.contract import LoopsEndpoint
from engine.store.errors import StoreError
from engine.store.rows import CheckpointRow, CheckpointState, RunRow
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.loops.management import LoopsManagement
    from engine.project import Project

type Reach = Callable[[], AbstractAsyncContextManager[LoopsEndpoint]]
"""Gives the Loops service of a config while its block lasts."""


def reach_baseten(project: Project) -> Reach | None:
    """Baseten, or whatever service the variables name; None without a key, which is a finding of its own."""
    key = project.environ.get("BASETEN_API_KEY", "").strip()
    if not key:
        return None
    endpoint = LoopsEndpoint(str(project.scope), project.environ.get("LOOPS_BASE_URL") or None, key)

    @asynccontextmanager
    async def reach() -> AsyncIterator[LoopsEndpoint]:
        yield endpoint

    return reach


_KEY = "model.from_checkpoint"
_ADDRESS = re.compile(r"bt://loops:[^/\s]+/(weights|sampler_weights)/\S+")


async def check_start(project: Project, report: CheckReport, reach: Reach | None) -> None:
    """[model] from_checkpoint: against this project's store, and against Loops where ``reach`` gives a way to ask.

    A Loops address names what only Loops knows.
    """
    wanted = project.config.model.from_checkpoint
    if wanted is None or project.goes_on:
        return
    if wanted.startswith("bt://"):
        if not _ADDRESS.fullmatch(wanted):
            _refuse(
                project,
                report,
                f"{wanted!r} is no address of a checkpoint",
                "Write it as bt://loops:RUN/weights/NAME, as `loops-tui checkpoints` shows it",
            )
        elif await _there(project, report, reach, lambda loops: loops.checkpoint(wanted)):
            report.lines.append(f"First weights: {wanted}")
        return
    try:
        run, checkpoint, of_run = await asyncio.to_thread(_stored, project.working_dir, wanted)
    except StoreError as error:
        _refuse(project, report, str(error), "Name a run of this project that has saved a checkpoint")
        return
    if (problem := _unfit(project, run, checkpoint)) is not None:
        _refuse(project, report, *problem)
        return

    async def look(loops: LoopsManagement) -> None:
        from engine.loops.kept import kept_checkpoint

        await kept_checkpoint(loops, checkpoint, "trainer", of_run)

    if await _there(project, report, reach, look):
        report.lines.append(f"First weights: {checkpoint.name} of run {run.run_id}, with a fresh optimizer")


def _stored(working_dir: Path, wanted: str) -> tuple[RunRow, CheckpointRow, list[CheckpointRow]]:
    """The run, its checkpoint that is meant, and all that it saved. Blocks briefly. Raises StoreError."""
    if not Store.exists(working_dir):
        raise StoreError(f"there is no run {wanted!r}: this project has no runs yet")
    with Store.open(working_dir) as store:
        reader = store.reader()
        checkpoint = reader.checkpoint(wanted)
        if checkpoint.trainer_path is None:
            raise StoreError(f"{checkpoint.name} of run {checkpoint.run_id} has no trainer's state")
        saved = [row for row in reader.checkpoints(checkpoint.run_id) if row.state is CheckpointState.SAVED]
        return reader.run(checkpoint.run_id), checkpoint, saved


async def _there(
    project: Project,
    report: CheckReport,
    reach: Reach | None,
    look: Callable[[LoopsManagement], Awaitable[object]],
) -> bool:
    """Whether the weights are where they should be, as far as anybody can be asked."""
    if reach is None:
        return True
    from engine.loops.errors import LoopsError
    from engine.loops.kept import ASK_SECONDS
    from engine.loops.management import LoopsManagement, UnknownToLoops

    try:
        async with (
            asyncio.timeout(ASK_SECONDS),
            reach() as endpoint,
            LoopsManagement(endpoint.url, endpoint.api_key) as loops,
        ):
            await look(loops)
    except UnknownToLoops as error:
        _refuse(project, report, str(error), "Name a checkpoint that Loops still has, or leave the key out")
        return False
    except (LoopsError, TimeoutError) as error:
        said = str(error) or f"Loops did not answer within {ASK_SECONDS:.0f} s"
        _refuse(project, report, said, "Check BASETEN_API_KEY, the address and the network")
        return False
    return True


def _unfit(project: Project, run: RunRow, checkpoint: CheckpointRow) -> tuple[str, str] | None:
    """Why the weights cannot be used, and what helps."""
    model = project.config.model
    what = f"{checkpoint.name} of run {run.run_id}"
    if run.base_model != model.base_model:
        return (
            f"{what} holds weights for {run.base_model}, but [model] base_model is {model.base_model}",
            f"Set base_model = {run.base_model!r}, or name another checkpoint",
        )
    rank = (tomllib.loads(run.config_toml).get("model") or {}).get(
        "lora_rank", ModelSettings.model_fields["lora_rank"].default
    )
    if rank != model.lora_rank:
        return (
            f"{what} holds an adapter of rank {rank}, but [model] lora_rank is {model.lora_rank}",
            f"Set lora_rank = {rank}, or name another checkpoint",
        )
    if run.scope != str(project.scope):
        return (
            f"{what} lies where its run was, on the scope {run.scope!r}, and this config runs on {project.scope!r}",
            f"Set [compute] scope = {run.scope!r}, or name another checkpoint",
        )
    return None


def _refuse(project: Project, report: CheckReport, text: str, remedy: str) -> None:
    report.add(Severity.ERROR, project.loaded.problem(_KEY, f"[model] from_checkpoint: {text}", remedy))
