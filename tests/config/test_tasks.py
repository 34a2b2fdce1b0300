"""Tasks files: all bad lines, with their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from engine.config import ConfigError, load_tasks


class MyTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str
    question: str
    size: int = 1


def lines(tmp_path: Path, *texts: str) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(texts))
    return path


def refusal(path: Path, task_type: object = MyTask) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_tasks(path, task_type)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


def test_good_lines_become_tasks(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"id": "a", "question": "?"}', "", '{"id": "b", "question": "!", "size": 2}\r')
    tasks = load_tasks(path, MyTask)
    assert [(task.id, task.index, task.line) for task in tasks] == [("a", 0, 1), ("b", 1, 3)]
    assert tasks[1].value == MyTask(id="b", question="!", size=2)


def test_every_bad_line_is_reported(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        '{"id": "a", "question": "?"}',
        '{"id": "b"}',
        '{"id": "c", "question": ',
        '{"id": "d", "question": "?", "sise": 1}',
        '{"id": "a", "question": "?"}',
        '{"id": "e", "question": "?", "size": "big"}',
        "[]",
    )
    told = refusal(path)
    assert told[0] == ":2: the task has no 'question'. Add it."
    assert told[1].startswith(":3: the line is not JSON (column 25)")
    assert told[2] == ":4: the task's type has no field 'sise'. Remove it, or add it to the type."
    assert told[3] == ":5: the task 'a' is already on line 1. Give every task its own id."
    assert told[4].startswith(":6: the task's 'size' is not valid")
    assert told[5].startswith(":7: the task is not valid")
    assert len(told) == 6


def test_ids_come_from_id_or_name_or_the_line(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"id": 7}', '{"name": "n"}', '{"x": 1}', '{"id": true}')
    assert [task.id for task in load_tasks(path, dict)] == ["7", "n", "3", "4"]


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "a", "question": "?"}\n')
    assert len(load_tasks(path, MyTask)) == 1


def test_files_without_tasks(tmp_path: Path) -> None:
    assert "holds no task" in refusal(lines(tmp_path, "", " "))[0]
    assert "no such tasks file" in refusal(tmp_path / "gone.jsonl")[0]
    assert "is a directory" in refusal(tmp_path)[0]
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9", "question": ""}')
    assert "not UTF-8" in refusal(tmp_path / "latin.jsonl")[0]


def test_a_file_of_another_format_does_not_flood(tmp_path: Path) -> None:
    told = refusal(lines(tmp_path, *["name,question"] * 1000))
    assert len(told) == 201
    assert "800 more problems" in told[-1]


def test_long_lines_are_fine(tmp_path: Path) -> None:
    path = lines(tmp_path, json.dumps({"id": "a", "question": "x" * 3_000_000}))
    assert len(load_tasks(path, MyTask)[0].value.question) == 3_000_000


def test_a_validator_that_raises_is_a_bad_line(tmp_path: Path) -> None:
    class Picky(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def explode(cls, value: int) -> int:
            raise ZeroDivisionError("no")

    assert refusal(lines(tmp_path, '{"x": 1}'), Picky) == [
        ":1: the task type refused the line: ZeroDivisionError: no."
    ]
