"""Between the dataclasses of ``rows`` and the columns of the tables: the one place that knows both spellings."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import zlib
from enum import Enum
from functools import cache
from typing import Any, cast

from engine.store.redact import Redactor
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CheckpointRow,
    CheckpointState,
    CheckRow,
    CommandRow,
    CommandState,
    EvalRow,
    GroupRow,
    GroupState,
    HostRow,
    LeaseRow,
    LeaseState,
    LogRow,
    PaceRow,
    RunRow,
    RunState,
    StepRow,
    TranscriptRow,
)

type Column = str | int | float | bytes | None


@dataclasses.dataclass(frozen=True)
class Table:
    """How one row type lies in its table."""

    name: str
    key: tuple[str, ...]
    json: frozenset[str] = frozenset()
    enums: tuple[tuple[str, type[Enum]], ...] = ()
    flags: frozenset[str] = frozenset()


TABLES: dict[type, Table] = {
    RunRow: Table("runs", ("run_id",), frozenset({"info", "spend"}), (("state", RunState),)),
    HostRow: Table("hosts", ("host_id",)),
    StepRow: Table("steps", ("run_id", "step"), frozenset({"metrics"})),
    GroupRow: Table("groups", ("run_id", "group_id"), enums=(("state", GroupState),)),
    AttemptRow: Table(
        "attempts",
        ("run_id", "group_id", "attempt"),
        frozenset({"timeline", "metadata"}),
        (("state", AttemptState),),
        frozenset({"timed_out"}),
    ),
    CommandRow: Table("commands", ("command_id",), frozenset({"args"}), (("state", CommandState),)),
    LogRow: Table("log", ("log_id",)),
    LeaseRow: Table("leases", ("name",), enums=(("state", LeaseState),)),
    PaceRow: Table("pace", ("provider",)),
    CheckpointRow: Table(
        "checkpoints", ("run_id", "name"), frozenset({"metrics", "cursor"}), (("state", CheckpointState),)
    ),
    EvalRow: Table("evals", ("run_id", "eval_id"), frozenset({"pass_at", "per_task", "metrics", "sampling"})),
    CheckRow: Table("checks", ("check_id",), frozenset({"findings", "lines"}), flags=frozenset({"ok"})),
}


@cache
def column_names(row_type: type) -> tuple[str, ...]:
    """The columns of a row type, in the order of its fields."""
    return tuple(field.name for field in dataclasses.fields(row_type))


@cache
def upsert_sql(row_type: type) -> str:
    """``INSERT … ON CONFLICT DO UPDATE`` for all columns of a row type."""
    table = TABLES[row_type]
    names = column_names(row_type)
    sets = ", ".join(f"{name} = excluded.{name}" for name in names if name not in table.key)
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
        f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {sets}"
    )


def encode_row(row: Any, redactor: Redactor) -> list[Column]:
    """The columns of a row, without secrets. Raises TypeError or ValueError for what cannot be stored."""
    row_type = type(row)
    return [encode_field(row_type, name, getattr(row, name), redactor) for name in column_names(row_type)]


def encode_field(row_type: type, name: str, value: Any, redactor: Redactor) -> Column:
    """One column. Raises TypeError or ValueError for what cannot be stored."""
    if name in TABLES[row_type].json:
        return dump_json(redactor.value(value))
    if value is None:
        return None
    if isinstance(value, str):
        return storable_text(redactor.text(str(value)))
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{row_type.__name__}.{name} = {value} does not fit into 64 bits")
        return value
    raise TypeError(f"{row_type.__name__}.{name} cannot hold a {type(value).__name__}")


def decode_row[RowT](row_type: type[RowT], columns: sqlite3.Row) -> RowT:
    """The dataclass of a table's row; columns that the dataclass lacks are left out."""
    table = TABLES[row_type]
    values: dict[str, Any] = {name: columns[name] for name in column_names(row_type)}
    for name in table.json:
        values[name] = json.loads(values[name])
    for name, enum in table.enums:
        values[name] = enum(values[name])
    for name in table.flags:
        values[name] = bool(values[name])
    return row_type(**values)


def storable_text(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates (a model's broken bytes) become visible escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def dump_json(value: Any) -> str:
    """Compact JSON; NaN and infinities stay (Python reads them back), numpy scalars become numbers."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


def pack_transcript(row: TranscriptRow, redactor: Redactor) -> tuple[bytes, str]:
    """The compressed body of a transcript and its searchable text, both without secrets."""
    turns = [_clean_turn(turn, redactor) for turn in row.turns]
    rest = {"tools": redactor.value(row.tools), "metadata": redactor.value(row.metadata)}
    # Turn by turn: JSON of a whole megabyte is written in one piece, in which no other thread runs.
    body = f'{{"turns":[{",".join(map(dump_json, turns))}],{dump_json(rest)[1:]}'
    return zlib.compress(body.encode("ascii"), 1), storable_text(transcript_text(turns))


def _clean_turn(turn: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    sampled = turn.get("sampled")
    if not isinstance(sampled, dict):
        return cast(dict[str, Any], redactor.value(turn))
    rest = {key: value for key, value in turn.items() if key != "sampled"}
    return {**redactor.value(rest), "sampled": redactor.sampled(sampled)}


def transcript_text(turns: list[dict[str, Any]]) -> str:
    """What a search looks through: contents, reasoning, tool names and arguments, turn by turn."""
    parts: list[str] = []
    for turn in turns:
        parts.extend(_texts(turn.get("reasoning")))
        parts.extend(_texts(turn.get("content")))
        for call in turn.get("tool_calls") or ():
            if isinstance(call, dict):
                parts.extend(_texts(call.get("name")))
                parts.extend(_texts(call.get("arguments")))
    return "\n".join(parts)


def _texts(value: Any) -> list[str]:
    """Contents are text, or a list of parts that carry text."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [
            text for part in value for text in _texts(part.get("text") if isinstance(part, dict) else part)
        ]
    return []


def unpack_transcript(columns: sqlite3.Row) -> TranscriptRow:
    """The transcript of a table's row."""
    body = json.loads(zlib.decompress(columns["body"]))
    return TranscriptRow(
        run_id=columns["run_id"],
        group_id=columns["group_id"],
        attempt=columns["attempt"],
        task_id=columns["task_id"],
        reward=columns["reward"],
        ending=columns["ending"],
        turns=body["turns"],
        tools=body["tools"],
        metadata=body["metadata"],
    )
