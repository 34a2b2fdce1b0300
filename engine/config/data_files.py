"""The files that ``[data]`` names: patterns expanded, in an order that never changes."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from engine.config.problems import Problem, did_you_mean
from engine.config.sft import DataSettings


def expand(patterns: Sequence[str]) -> list[Path]:
    """The regular files that match, each once: in the order of the patterns, sorted by name within each."""
    files: dict[Path, None] = {}
    for pattern in patterns:
        names = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        files.update({Path(name): None for name in names if os.path.isfile(name)})
    return list(files)


def data_file_problems(data: DataSettings) -> list[Problem]:
    """Names and patterns of ``[data]`` that lead to no file, and files that are in both sets."""
    problems: list[Problem] = []
    for key in ("train", "validation"):
        for pattern in getattr(data, key):
            if not expand([pattern]):
                problems.append(_missing(pattern, key))
    both = {file.resolve() for file in expand(data.train)} & {
        file.resolve() for file in expand(data.validation)
    }
    problems += [
        Problem(
            f"{file.name} is trained on and validated on, so its loss would say nothing",
            key="data.validation",
            remedy="Split it, or remove it from one of the two",
        )
        for file in sorted(both)
    ]
    return problems


def _missing(pattern: str, key: str) -> Problem:
    dotted, path = f"data.{key}", Path(pattern)
    if glob.has_magic(pattern):
        return Problem(f"no file matches {pattern}", key=dotted, remedy="Check the directory and the pattern")
    if path.is_dir():
        return Problem(
            f"{pattern} is a directory",
            key=dotted,
            remedy=f"Write {json_pattern(path)!r} for the JSONL files in it",
        )
    if path.exists():
        return Problem(f"{pattern} is no regular file", key=dotted, remedy="Name a JSONL file")
    near = (
        did_you_mean(path.name, [file.name for file in path.parent.glob("*.jsonl")])
        if path.parent.is_dir()
        else None
    )
    return Problem(
        f"there is no data file {pattern}", key=dotted, remedy=f"Did you mean {near!r}?" if near else None
    )


def json_pattern(directory: Path) -> str:
    """The pattern of the JSONL files in a directory."""
    return str(directory / "*.jsonl")
