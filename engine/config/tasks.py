"""The tasks file: JSONL, one task a line, all of it validated before anything is spent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from engine.config.problems import ConfigError, Problem, did_you_mean

_MOST_SHOWN = 200  # bad lines reported one by one; a file of another format has a million of them
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """One line of the tasks file, as the episode's task type."""

    id: str  # its field id or name, otherwise its line number
    index: int  # 0-based, in file order
    line: int  # 1-based
    value: Any


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
            problems += [Problem(text, file=path, line=number, key=key) for key, text in bad.findings]
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
        tasks.append(LoadedTask(task_id, len(tasks), number, value))
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
    def __init__(self, findings: list[tuple[str | None, str]]) -> None:
        super().__init__(findings)
        self.findings = findings


#: How files of other formats begin, and what they are.
_FORMATS: tuple[tuple[bytes, str, str], ...] = (
    (b"\xff\xfe", "is UTF-16 text", "Save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16 text", "Save it as UTF-8"),
    (b"\x1f\x8b", "is compressed (gzip)", "Unpack it: gzip -d"),
    (b"(\xb5/\xfd", "is compressed (zstd)", "Unpack it: zstd -d"),
    (b"PK\x03\x04", "is a zip archive", "Unpack it"),
    (b"PAR1", "is a Parquet file", "Write its rows as JSONL, one JSON object a line"),
    (b"ARROW1", "is an Arrow file", "Write its rows as JSONL, one JSON object a line"),
    (b"SQLite format 3", "is an SQLite database", "Write its rows as JSONL, one JSON object a line"),
)


def _other_format(data: bytes) -> tuple[str, str] | None:
    """What a file is that holds no JSONL at all, and what helps."""
    for begin, what, remedy in _FORMATS:
        if data.startswith(begin):
            return what, remedy
    body = data.removeprefix(_BOM).lstrip()
    if body.startswith(b"[") and body.rstrip().endswith(b"]") and b"\n" in body.strip():
        try:
            inside = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if isinstance(inside, list):
            return "is one JSON array", "Write each of its objects on a line of its own"
    return None


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise ConfigError([Problem("the tasks file is a directory", file=path, remedy="Name a JSONL file")])
    if path.exists() and not path.is_file():  # a device or a pipe would be read for ever
        raise ConfigError(
            [Problem("the tasks file is no regular file", file=path, remedy="Name a JSONL file")]
        )
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        near = did_you_mean(path.name, [file.name for file in path.parent.glob("*.jsonl")])
        remedy = f"Did you mean {near!r}?" if near else "Name a JSONL file, relative to the config"
        raise ConfigError([Problem("there is no such tasks file", file=path, remedy=remedy)]) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text, remedy = f"the tasks file cannot be read: {reason}", "Name a JSONL file that may be read"
        raise ConfigError([Problem(text, file=path, remedy=remedy)]) from error


def _parse(line: bytes, adapter: TypeAdapter[Any]) -> tuple[Any, Any]:
    try:
        fields = json.loads(line, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise _BadLine([(None, "the line is not UTF-8 text")]) from error
    except json.JSONDecodeError as error:
        raise _BadLine([(None, f"the line is not JSON (column {error.colno}): {error.msg}")]) from error
    except RecursionError as error:
        raise _BadLine([(None, "the line's JSON is nested too deeply")]) from error
    except ValueError as error:  # a number of thousands of digits
        raise _BadLine([(None, f"the line's JSON cannot be read: {error}")]) from error
    try:
        return fields, adapter.validate_json(line)
    except ValidationError as error:
        found: list[tuple[str | None, str]] = []
        for detail in error.errors(include_url=False):
            key = ".".join(str(part) for part in detail["loc"]) or None
            found.append((key, _sentence(key, detail["type"], detail["msg"])))
        raise _BadLine(found) from error
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise _BadLine([(None, f"the task type refused the line: {said}")]) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, whose keys must differ: of two values one would go unread."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise _BadLine([(double, f"the key {double!r} stands twice in one object")])
    return fields


def _sentence(key: str | None, kind: str, message: str) -> str:
    if key is None:
        return f"the task is not valid: {message[:1].lower()}{message[1:]}"
    if kind == "missing":
        return f"the task has no {key!r}"
    if kind == "extra_forbidden":
        return f"the task's type has no field {key!r}"
    return f"the task's {key!r} is not valid: {message[:1].lower()}{message[1:]}"


def _task_id(fields: Any, number: int) -> str:
    if isinstance(fields, dict):
        for name in ("id", "name"):
            value = fields.get(name)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
                return str(value)
    return str(number)
