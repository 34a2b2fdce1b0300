"""The problems of a config's text while somebody edits it: each with its line, nothing imported, nothing started.

What :func:`engine.config.loading.load_config` would refuse is found here without reading a file or changing the
process's environment; of the disk only the existence of what the config names beside itself is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.config.any_recipe import AnySettings
from engine.config.data_files import data_file_problems
from engine.config.doubts import config_doubts
from engine.config.environment import read_env_files
from engine.config.loading import place, validate
from engine.config.local_models import model_directory, shipped_models
from engine.config.parsing import read_config
from engine.config.positions import KeyLines, json_key_lines, toml_key_lines
from engine.config.problems import ConfigError, Problem, did_you_mean
from engine.config.report import Finding, Severity
from engine.config.settings import EffectiveScope, Settings
from engine.config.sft import SftSettings


@dataclass(frozen=True, slots=True)
class Linted:
    """What is known about a text. ``table`` is None where the text cannot be parsed, ``settings`` where it is wrong."""

    findings: list[Finding]
    table: (
        dict[str, Any] | None
    )  # paths absolute and the runs' name filled in, as a run's stored config has them
    settings: AnySettings | None
    scope: EffectiveScope | None
    lines: KeyLines = field(repr=False)

    @property
    def errors(self) -> int:
        """How many findings would keep a run from starting."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)


def lint(text: str, path: Path, *, working_dir: Path, environ: Mapping[str, str] | None = None) -> Linted:
    """Every problem of ``text``, the config at ``path`` as it is being edited. Never raises for what it says.

    ``environ``: the variables that count; without them the process's, over those of the .env files as in a load.
    """
    source = path.resolve()
    lines = key_lines(text, path)
    try:
        _, table, lines = read_config(source, path, text)
    except ConfigError as error:
        return Linted(
            [Finding.of(Severity.ERROR, problem) for problem in error.problems], None, None, None, lines
        )
    trouble: list[Problem] = []
    if environ is None:
        try:
            values, _ = read_env_files([source.parent / ".env", working_dir / ".env"])
        except ConfigError as error:
            values, trouble = {}, error.problems
        environ = {**values, **os.environ}
    settings, scope, problems = validate(table, {}, source, working_dir, environ)
    problems += trouble
    warnings: list[Problem] = []
    if settings is not None:
        warnings = list(config_doubts(settings, scope))
        if isinstance(settings, SftSettings):
            problems += data_file_problems(settings.data)
        else:
            problems += _missing_beside(settings, source.parent)
        if scope == "local":
            problems += _missing_model(settings.model.base_model)
    findings = [
        Finding.of(severity, place(problem, source, lines, {}))
        for severity, found in ((Severity.ERROR, problems), (Severity.WARNING, warnings))
        for problem in found
    ]
    findings.sort(key=lambda finding: (finding.line is None, finding.line or 0))
    return Linted(findings, table, settings if not problems else None, scope, lines)


def key_lines(text: str, path: Path) -> KeyLines:
    """Which line holds which key, also of a text that no parser accepts (yet)."""
    return json_key_lines(text) if path.suffix.lower() == ".json" else toml_key_lines(text)


def _missing_beside(settings: Settings, directory: Path) -> list[Problem]:
    """Files that the config names and that are not there; whether they are right is a check's business."""
    problems: list[Problem] = []
    named = {"runtime.config.tasks": settings.runtime.config.tasks}
    if settings.eval is not None:
        named["eval.tasks"] = settings.eval.tasks
    for key, file in named.items():
        if not os.path.isfile(file):
            near = did_you_mean(file.name, _names(file.parent, "*.jsonl"))
            remedy = f"Did you mean {near!r}?" if near else None
            problems.append(Problem(f"there is no tasks file {file.name!r}", key=key, remedy=remedy))
    module = settings.runtime.config.episode.partition(":")[0]
    place_of = directory.joinpath(*module.split("."))
    if not os.path.isfile(f"{place_of}.py") and not os.path.isfile(place_of / "__init__.py"):
        near = did_you_mean(module, [name.removesuffix(".py") for name in _names(directory, "*.py")])
        remedy = f"Did you mean {near!r}?" if near else None
        problems.append(
            Problem(
                f"there is no module {module!r} beside the config",
                key="runtime.config.episode",
                remedy=remedy,
            )
        )
    return problems


def _missing_model(name: str) -> list[Problem]:
    if model_directory(name) is not None:
        return []
    shipped = shipped_models()
    near = did_you_mean(name, shipped)
    remedy = f"Did you mean {near!r}?" if near else f"Name {' or '.join(shipped)}, or a model directory"
    return [Problem(f"there is no model {name!r} on this machine", key="model.base_model", remedy=remedy)]


def _names(directory: Path, pattern: str) -> list[str]:
    return [file.name for file in directory.glob(pattern)] if os.path.isdir(directory) else []
