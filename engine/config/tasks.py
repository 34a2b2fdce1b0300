"""The tasks file: JSONL, one task a line, all of it validated before anything is spent."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from engine.config.data_files import meant_file
from engine.config.explain import words_of
from engine.config.formats import DoubledKey, json_remedy, other_format, single_keys
from engine.config.problems import ConfigError, Problem, did_you_mean
from engine.config.user_errors import at_the_keyboard, raised

_MOST_SHOWN = 200  # bad lines reported one by one; a file of another format has a million of them
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """One line of the tasks file, as the episode's task type."""

    id: str  # its field id or name, otherwise its line number
    index: int  # 0-based, in file order
    line: int  # 1-based
    value: Any
    asks: str  # the same for tasks that differ in their names alone


def load_tasks(path: Path, task_type: Any) -> list[LoadedTask]:
    """Every task of ``path``; raises ConfigError with all bad lines, not the first alone."""
    data = _read(path)
    if (other := _other_format(data)) is not None:
        what, remedy = other
        raise ConfigError([Problem(f"the tasks file {what}, not JSONL", file=path, line=1, remedy=remedy)])
    adapter: TypeAdapter[Any] = TypeAdapter(task_type)
    tasks: list[LoadedTask] = []
    problems: list[Problem] = []
    lines_of_ids: dict[str, int] = {}
    for number, raw in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            fields, value = _parse(raw.rstrip(b"\r"), adapter)
        except _BadLine as bad:
            problems += [Problem(text, path, number, key, remedy) for key, text, remedy in bad.findings]
            continue
        task_id = _task_id(fields, number)
        first = lines_of_ids.setdefault(task_id, number)
        if first != number:
            problems.append(
                Problem(
                    f"the task {task_id!r} is already on line {first}",
                    file=path,
                    line=number,
                    remedy="Give every task its own id",
                )
            )
            continue
        tasks.append(LoadedTask(task_id, len(tasks), number, value, _asks(fields)))
    if problems:
        if len(problems) > _MOST_SHOWN:
            more = len(problems) - _MOST_SHOWN
            problems = [*problems[:_MOST_SHOWN], Problem(f"and {more} more problems", file=path)]
        raise ConfigError(problems)
    if not tasks:
        raise ConfigError(
            [Problem("the tasks file holds no task", file=path, remedy="Write one JSON object a line")]
        )
    return tasks


def tasks_fingerprint(path: Path) -> str:
    """The same for files with the same tasks in the same order, whatever their white space. Raises ConfigError."""
    digest = hashlib.sha256()
    for raw in _read(path).removeprefix(_BOM).split(b"\n"):
        if not raw.strip():
            continue
        try:
            task = json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).encode()
        except ValueError:
            task = raw.strip()  # loading the tasks says what is wrong with it
        digest.update(task + b"\n")
    return digest.hexdigest()


class _BadLine(Exception):
    """What is wrong with one line: of each finding the field, the sentence and the remedy."""

    def __init__(self, *findings: tuple[str | None, str, str | None]) -> None:
        super().__init__(findings)
        self.findings = findings


def _other_format(data: bytes) -> tuple[str, str] | None:
    """What a file is that holds no JSONL at all, and what helps."""
    if (other := other_format(data)) is not None:
        return other
    body = data.removeprefix(_BOM).strip()
    if body[:1] not in (b"[", b"{") or (b"\n" not in body and body[:1] == b"{"):
        return None
    try:
        inside = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(inside, list):
        return "is one JSON array", "Write each of its objects on a line of its own"
    return "is one JSON object over several lines", "Write each task on one line"


def _read(path: Path) -> bytes:
    if os.path.isdir(path):
        raise ConfigError([Problem("the tasks file is a directory", file=path, remedy="Name a JSONL file")])
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe would be read for ever
        raise ConfigError(
            [Problem("the tasks file is no regular file", file=path, remedy="Name a JSONL file")]
        )
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        remedy = meant_file(path) or "Name a JSONL file"
        raise ConfigError([Problem("there is no such tasks file", file=path, remedy=remedy)]) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text, remedy = f"the tasks file cannot be read: {reason}", "Name a JSONL file that may be read"
        raise ConfigError([Problem(text, file=path, remedy=remedy)]) from error


_ONE_A_LINE = "Write one JSON object a line"


def _parse(line: bytes, adapter: TypeAdapter[Any]) -> tuple[Any, Any]:
    try:
        fields = json.loads(line.decode(), object_pairs_hook=single_keys)
    except DoubledKey as error:
        raise _BadLine((error.key, str(error), "Remove one of them")) from error
    except UnicodeDecodeError as error:
        raise _BadLine((None, "the line is not UTF-8 text", "Save the file as UTF-8")) from error
    except json.JSONDecodeError as error:
        said = f"the line is not JSON (column {error.colno}): {error.msg}"
        raise _BadLine((None, said, json_remedy(error, _ONE_A_LINE))) from error
    except RecursionError as error:
        raise _BadLine((None, "the line's JSON is nested too deeply", _ONE_A_LINE)) from error
    except ValueError as error:  # a number of thousands of digits
        raise _BadLine((None, f"the line's JSON cannot be read: {error}", "Write it as text")) from error
    try:
        return fields, adapter.validate_json(line)
    except ValidationError as error:
        if (half := _half_a_character(fields)) is not None:
            raise _BadLine((None, half, "Write the whole character")) from error
        raise _BadLine(*(_finding(detail, fields) for detail in error.errors(include_url=False))) from error
    except BaseException as error:  # a validator of the user's may raise anything
        if at_the_keyboard(error):
            raise
        raise _BadLine((None, f"the task type refused the line: {raised(error)}", None)) from error


def _half_a_character(fields: Any) -> str | None:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return (
            f"the line holds half of a surrogate pair, which is no character: {error.object[error.start]!r}"
        )
    return None


def _finding(detail: ErrorDetails, fields: Any) -> tuple[str | None, str, str | None]:
    key = ".".join(str(part) for part in detail["loc"]) or None
    if key is None:
        return key, f"the task is not valid: {words_of(detail)}", None
    if detail["type"] == "missing":
        near = did_you_mean(key, fields) if isinstance(fields, dict) else None
        return key, f"the task has no {key!r}", f"Is it {near!r}?" if near else "Add it"
    if detail["type"] == "extra_forbidden":
        return key, f"the task's type has no field {key!r}", "Remove it, or add it to the type"
    return key, f"the task's {key!r} is not valid: {words_of(detail)}", None


_NAMES = ("id", "name")  # what a task is called says nothing of what it asks


def _asks(fields: Any) -> str:
    """A digest of what a task asks, as its line has it: its type need not be able to write it again."""
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if name not in _NAMES} or fields
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _task_id(fields: Any, number: int) -> str:
    if isinstance(fields, dict):
        for name in _NAMES:
            value = fields.get(name)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
                return str(value)
    return str(number)
