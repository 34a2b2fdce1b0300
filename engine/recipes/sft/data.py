"""An SFT run's data: its renderer, and its files prepared for training and validation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.data_files import data_file_problems, expand
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.recipes.contract import RunFailed
from engine.recipes.sft.prepared import PreparedData, prepare
from engine.store.schema import STORE_DIRECTORY

if TYPE_CHECKING:
    from engine.project import Project

CACHE = "prepared"


@dataclass(frozen=True, slots=True)
class RunData:
    """``validation`` is None where the config names no files for it."""

    renderer: PolicyRenderer
    train: PreparedData
    validation: PreparedData | None


def sft_renderer(project: Project) -> PolicyRenderer:
    """What turns conversations into tokens: the renderer that the config names, or else the model's own template.

    A hand-written renderer may differ from the template where a conversation goes on; what is learned here must be
    what the template asks for. Blocks. Raises RenderingError.
    """
    model = project.config.model

    def load(name: str | None) -> PolicyRenderer:
        return load_renderer(
            model_name=model.base_model,
            tokenizer_source=project.tokenizer_source,
            renderer=name,
            template_kwargs=model.renderer_chat_template_kwargs,
        )

    if model.renderer is not None:
        return load(model.renderer)
    chosen = load(None)
    if getattr(chosen.tokenizer, "chat_template", None):
        chosen = load("default")
        chosen.how = "the model's own chat template"
    return chosen


def cache_directory(project: Project) -> Path:
    """Where a project's prepared sets lie, beside its store."""
    return project.working_dir / STORE_DIRECTORY / CACHE


def prepare_data(project: Project, told: Callable[[str, int], None], stopped: threading.Event) -> RunData:
    """Render all files, or take what a check rendered before. Blocks, for minutes where the files are large.

    ``told`` is given what is being prepared and the number of rows so far; ``stopped`` ends the work.

    Raises:
        RunFailed: a file is missing, or more rows are refused than [data] max_refused allows.
        RenderingError, PreparationStopped
    """
    data, model = project.sft.data, project.sft.model
    problems = data_file_problems(data)
    if problems:
        raise RunFailed("; ".join(str(problem) for problem in problems))
    renderer = sft_renderer(project)

    def of(name: str, patterns: list[str]) -> PreparedData:
        try:
            prepared = prepare(
                expand(patterns),
                renderer,
                model.max_seq_len,
                cache_directory(project),
                template_kwargs=model.renderer_chat_template_kwargs,
                progress=lambda rows: told(name, rows),
                stopped=stopped.is_set,
            )
        except OSError as error:
            raise RunFailed(f"the {name} data could not be prepared: {error}") from error
        problem = refusal(prepared, data.max_refused, name)
        if problem is not None:
            raise RunFailed(problem)
        return prepared

    return RunData(
        renderer, of("training", data.train), of("validation", data.validation) if data.validation else None
    )


def refusal(prepared: PreparedData, allowed: float, name: str) -> str | None:
    """Why a prepared set is not trained on or scored, in one sentence; None where it is fit."""
    summary = prepared.summary
    if summary.rows == 0:
        return f"the {name} data holds no rows"
    first = f"; the first one: {_told(prepared)}" if summary.shown else ""
    if not len(prepared):
        return f"all {summary.rows:,} rows of the {name} data are refused{first}"
    share = summary.refused_rows / summary.rows
    if share > allowed:
        return (
            f"{summary.refused_rows:,} of {summary.rows:,} rows of the {name} data are refused ({share:.0%}), more than "
            f"[data] max_refused = {allowed:g} allows{first}"
        )
    return None


def _told(prepared: PreparedData) -> str:
    row = prepared.summary.shown[0]
    return f"{row.file}:{row.line}: {row.reason}: {row.detail}"
