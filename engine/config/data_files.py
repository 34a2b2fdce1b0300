"""The files that ``[data]`` names: patterns expanded, in an order that never changes."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from engine.config.formats import other_format
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


def foreign_file_problems(data: DataSettings) -> list[Problem]:
    """Files of ``[data]`` that hold no JSONL at all, told once and not row by row. Reads where they begin."""
    problems: list[Problem] = []
    for key in ("train", "validation"):
        for file in expand(getattr(data, key)):
            try:
                with file.open("rb") as opened:
                    begins = opened.read(_BEGINS)
            except OSError as error:
                reason, remedy = error.strerror or type(error).__name__, "Check who may read it"
                problems.append(Problem(f"{file} cannot be read: {reason}", key=f"data.{key}", remedy=remedy))
                continue
            other = other_format(begins) or (
                _ARRAY if begins.removeprefix(_BOM).lstrip()[:1] == b"[" else None
            )
            if other is not None:
                problems.append(Problem(f"{file} {other[0]}, not JSONL", key=f"data.{key}", remedy=other[1]))
    return problems


_BEGINS = 4096  # bytes
_BOM = b"\xef\xbb\xbf"
_ARRAY = ("is one JSON array", "Write each of its objects on a line of its own")


def _missing(pattern: str, key: str) -> Problem:
    dotted, path = f"data.{key}", Path(pattern)
    if glob.has_magic(pattern):
        return Problem(f"no file matches {pattern}", key=dotted, remedy="Check the directory and the pattern")
    if os.path.isdir(path):
        return Problem(
            f"{pattern} is a directory",
            key=dotted,
            remedy=f"Write {json_pattern(path)!r} for the JSONL files in it",
        )
    if os.path.exists(path):
        return Problem(f"{pattern} is no regular file", key=dotted, remedy="Name a JSONL file")
    return Problem(
        f"there is no data file {pattern}", key=dotted, remedy=meant_file(path) or "Name a JSONL file"
    )


def meant_file(path: Path) -> str | None:
    """What was probably meant by the name of a JSONL file that is not there."""
    if os.path.islink(path):
        return f"It is a link to {os.readlink(path)}, which leads nowhere"
    if not os.path.isdir(path.parent):
        return f"There is no directory {path.parent}"
    near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.jsonl")])
    return f"Did you mean {near!r}?" if near else None


def json_pattern(directory: Path) -> str:
    """The pattern of the JSONL files in a directory."""
    return str(directory / "*.jsonl")
