"""How a checkpoint keeps where a run stands, and which checkpoints are not gone on from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.recipes.cursor import StoredCursor, problem_with
from engine.recipes.rl.cursor import Cursor as RLCursor
from engine.recipes.sft.cursor import Cursor as SFTCursor

#: As the checkpoints of runs have them that somebody may want to resume.
RL = {
    "identity": {"tasks": "t1", "model": None},
    "next_group": 9,
    "consecutive_unusable": 0,
    "unusable_groups": 1,
    "reward_first": 0.25,
    "reward_last": 0.5,
    "reward_best": 1.0,
    "untrained": [9, 10],
}
SFT = {
    "identity": {"train": "t1", "model": "m1"},
    "epoch": 1,
    "place": 32,
    "best": 0.5,
    "worse": 0,
    "loss_first": 2.0,
    "loss_last": 0.75,
}


@pytest.mark.parametrize(("cursor", "row"), [(RLCursor, RL), (SFTCursor, SFT)])
def test_a_cursor_comes_back_as_it_was_kept(cursor: type[StoredCursor], row: dict[str, Any]) -> None:
    found = cursor.from_row(json.loads(json.dumps(row)))
    assert json.loads(json.dumps(found.to_row())) == row


@pytest.mark.parametrize(
    "row",
    [{}, SFT, {**RL, "more": 1}, {**RL, "identity": None}, {**RL, "identity": "t1"}, {**RL, "identity": [1]}],
)
def test_what_says_nothing_of_where_the_run_stood_is_refused(row: dict[str, Any]) -> None:
    said = problem_with(RLCursor, row, None, {"tasks": "t1", "model": None}, "the data changed")  # type: ignore[arg-type]
    assert said is not None
    assert said.startswith("its checkpoint was written by another version")


@pytest.mark.parametrize(("tasks", "said"), [("t1", None), ("t2", "the data changed")])
def test_other_data_are_told_of(tasks: str, said: str | None) -> None:
    now = {"tasks": tasks, "model": None}
    assert problem_with(RLCursor, RL, None, now, "the data changed") == said  # type: ignore[arg-type]
