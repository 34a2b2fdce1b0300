"""Where a run's first weights come from: is the checkpoint there, and is it one of this model and rank?"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

from engine.config.report import CheckReport, Severity
from engine.config.sections import ModelSettings
from engine.store.errors import StoreError
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.project import Project
    from engine.store.rows import CheckpointRow, RunRow

_KEY = "model.from_checkpoint"
_ADDRESS = re.compile(r"bt://loops:[^/\s]+/(weights|sampler_weights)/\S+")


def check_start(project: Project, report: CheckReport) -> None:
    """[model] from_checkpoint, against this project's store. Blocks briefly.

    A Loops address names what only Loops knows; it is looked up when the run begins.
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
        else:
            report.lines.append(f"First weights: {wanted}")
        return
    try:
        if not Store.exists(project.working_dir):
            raise StoreError(f"there is no run {wanted!r}: this project has no runs yet")
        with Store.open(project.working_dir) as store:
            reader = store.reader()
            checkpoint = reader.checkpoint(wanted)
            run = reader.run(checkpoint.run_id)
    except StoreError as error:
        _refuse(project, report, str(error), "Name a run of this project that has saved a checkpoint")
        return
    if (problem := _unfit(project, run, checkpoint)) is not None:
        _refuse(project, report, *problem)
    else:
        report.lines.append(f"First weights: {checkpoint.name} of run {run.run_id}, with a fresh optimizer")


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
