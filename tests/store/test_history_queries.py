"""What a long history is asked for."""

from __future__ import annotations

import time
from pathlib import Path

from engine.store import Store
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CheckpointRow,
    CheckpointState,
    GroupRow,
    GroupState,
    RunState,
    StepRow,
)
from tests.store.conftest import make_host, make_run

RUN = "20261129-143501-k3f9"


def group(group_id: int, step: int | None, eval_id: str | None = None) -> GroupRow:
    return GroupRow(RUN, group_id, GroupState.TRAINED, "t", 0, step, eval_id=eval_id)


def filled(store: Store, project: Path) -> None:
    """Two steps whose groups alternate, one group without attempts, one of no step yet, and an evaluation."""
    store.create_run(make_run(project))
    recorder = store.recorder(RUN, files=False)
    rows = [group(0, 1), group(1, 2), group(2, 1), group(3, 2), group(4, 2), group(5, None)]
    rows += [group(-1, 1, "base"), group(-2, 1, "base"), group(-3, 2, "step-000002")]
    for row in rows:
        recorder.group(row)
        if row.group_id != 3:
            recorder.attempt(AttemptRow(RUN, row.group_id, 0, AttemptState.DONE))
    store.flush()


def test_the_next_group_is_of_the_same_step_first(store: Store, tmp_path: Path) -> None:
    filled(store, tmp_path)
    reader = store.reader()

    def way(start: int, by: int) -> list[int]:
        found: list[int] = []
        row = reader.neighbour_group(RUN, start, by)
        while row is not None:
            found.append(row.group_id)
            row = reader.neighbour_group(RUN, row.group_id, by)
        return found

    assert way(0, 1) == [2, 1, 4, 5]
    assert way(5, -1) == [4, 1, 2, 0]
    assert way(-1, 1) == [-2]
    assert way(-2, -1) == [-1]
    assert way(-3, 1) == []
    assert reader.neighbour_group(RUN, 99, 1) is None


def test_states_come_in_the_order_of_the_runs(store: Store, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        store.create_run(make_run(tmp_path, name, created_at=float(number)))
    host = make_host()
    store.claim("a", host, RunState.RUNNING)
    for name in ("b", "c"):
        store.claim(name, host, RunState.RUNNING)
        store.end_run(name, host.host_id, RunState.DONE, None)
    reader = store.reader()
    expected = [(run.run_id, run.state) for run in reader.runs()]
    assert (
        reader.run_states()
        == expected
        == [("a", RunState.RUNNING), ("c", RunState.DONE), ("b", RunState.DONE)]
    )
    assert reader.run_states(1) == expected[:1]
    assert list(reader.runs_by_id(["b", "nowhere"])) == ["b"]
    assert reader.runs_by_id([]) == {}


def test_the_last_checkpoint_is_the_highest_saved_one(store: Store, tmp_path: Path) -> None:
    store.create_run(make_run(tmp_path))
    recorder = store.recorder(RUN, files=False)
    for step, state in ((2, CheckpointState.SAVED), (4, CheckpointState.SAVED), (6, CheckpointState.SAVING)):
        name = f"step-{step:06d}"
        recorder.checkpoint(
            CheckpointRow(RUN, name, step, state, "every", time.time(), trainer_path=f"bt://{name}")
        )
    store.flush()
    last = store.reader().last_checkpoints()
    assert (last[RUN].name, last[RUN].step) == ("step-000004", 4)


def test_how_much_there_is_of_a_run(store: Store, tmp_path: Path) -> None:
    filled(store, tmp_path)
    for number, state in ((1, "done"), (2, "collecting")):  # it ended while it sampled for the second
        store.recorder(RUN, files=False).step(StepRow(RUN, number, state, float(number)))
    store.flush()
    size = store.reader().record_size(RUN)
    assert (size.steps, size.groups, size.attempts, size.transcripts) == (1, 9, 8, 0)
