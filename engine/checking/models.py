"""Is the model there, and long enough? For a local run by its files, for one on Baseten by asking Loops."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.local_models import UnusableModel, describe_model, shipped_models
from engine.config.problems import did_you_mean
from engine.config.report import CheckReport, Severity

if TYPE_CHECKING:
    from engine.project import Project

LOOPS_SECONDS = 15.0  # the longest wait for Loops' answer
_BASE_MODEL = "model.base_model"
_KEY, _ALIKE = "BASETEN_API_KEY", 0.8


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def check_local_model(project: Project, report: CheckReport) -> None:
    """The shipped model or a directory with a supported architecture."""
    model = project.config.model
    directory = project.model_dir
    if directory is None:
        report.add(Severity.ERROR, project.loaded.problem(_BASE_MODEL, *_no_such_local_model(project)))
        return
    try:
        found = describe_model(directory)
    except UnusableModel as error:
        report.add(
            Severity.ERROR,
            project.loaded.problem(_BASE_MODEL, str(error), _directory_remedy()),
        )
        return
    limit = found.context_length
    _check_length(project, report, limit)
    enabled = f"its context is {limit}" if limit is not None else "it names no context length"
    report.lines.append(
        f"Loops model: {model.base_model}; max_seq_len {model.max_seq_len} ({enabled}); on this machine, "
        f"{found.architecture}"
    )


def _no_such_local_model(project: Project) -> tuple[str, str]:
    name = project.config.model.base_model
    path = Path(name)
    if path.is_absolute():
        what = "is not a directory" if os.path.exists(path) else "does not exist"
        return f"the model directory {name} {what}", _directory_remedy()
    meant = did_you_mean(name, shipped_models())
    remedy = (
        f"Did you mean {meant!r}?"
        if meant
        else (
            f"Local runs train {_shipped_names()} or a model directory; for a model on Baseten set [compute] scope to "
            "'dedicated' or 'serverless'"
        )
    )
    return f"there is no model {name!r} on this machine", remedy


def _directory_remedy() -> str:
    return (
        "Name a directory with config.json, tokenizer.json and the weights in safetensors, or a model that comes with "
        f"loops-tui: {_shipped_names()}"
    )


def _shipped_names() -> str:
    return ", ".join(shipped_models()) or "none"


async def check_loops_model(project: Project, report: CheckReport) -> None:
    """Ask Loops whether it offers the model at the length the config wants."""
    if project.config.model.base_model in shipped_models():
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                _BASE_MODEL,
                f"the model {project.config.model.base_model!r} runs on this machine only",
                "Set [compute] scope = 'local', or name a model that Loops offers",
            ),
        )
        return
    from engine.checking.offered import offered_models
    from engine.checking.rendering import load_ahead
    from engine.loops.errors import LoopsError

    key = project.environ.get(_KEY, "").strip()
    if not key:
        alike = (name for name in project.environ if name != _KEY and _ratio(name.upper(), _KEY) > _ALIKE)
        instead = "".join(f"; {name} is" for name in alike)
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                "compute.scope",
                f"{_KEY} is not set, and a run on Baseten needs it{instead}",
                "Set it in the environment or in a .env file beside the config or in the working directory; or set "
                "[compute] scope = 'local' with a local model",
            ),
        )
        return
    if not key.isascii() or any(char.isspace() or char in "<>'\"" for char in key):
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                "compute.scope",
                f"{_KEY} holds a character that no key has, such as a space, a quote or a bracket",
                "Set it to the key itself, as the workspace's settings show it",
            ),
        )
        return
    url = project.environ.get("LOOPS_BASE_URL") or None
    load_ahead()
    try:
        offered = await offered_models(url, key, LOOPS_SECONDS)
    except LoopsError as error:
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                "compute.base_url" if project.config.compute.base_url is not None else "compute.scope",
                str(error),
                "Check BASETEN_API_KEY, the address and the network",
            ),
        )
        return
    model = project.config.model
    match = next((candidate for candidate in offered if candidate.model_name == model.base_model), None)
    if match is None:
        names = [candidate.model_name for candidate in offered]
        meant = did_you_mean(model.base_model, names)
        listed = ", ".join(sorted(names)[:8]) or "none"
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                _BASE_MODEL,
                f"Loops does not offer the model {model.base_model!r}",
                f"Did you mean {meant!r}?" if meant else f"It offers {listed}",
            ),
        )
        return
    _check_length(project, report, match.max_context_length)
    limit = (
        f"enabled up to {match.max_context_length}"
        if match.max_context_length is not None
        else "Loops names no limit"
    )
    report.lines.append(f"Loops model: {model.base_model}; max_seq_len {model.max_seq_len} ({limit})")


def _check_length(project: Project, report: CheckReport, limit: int | None) -> None:
    wanted = project.config.model.max_seq_len
    if limit is not None and wanted > limit:
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                "model.max_seq_len",
                f"[model] max_seq_len is {wanted}, but {project.config.model.base_model} takes at most {limit} tokens",
                f"Set it to {limit} or less",
            ),
        )
