"""What a view of one run asks: the step in hand, its groups, rewards by value, evaluations apart from training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store.queries import StoreReader
from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState, RunState
from engine.store.store import Store
from tools.sample_store import run_row

RUN = "20261129-120000-q1"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[StoreReader]:
    """Two trained steps, a third in hand, a fourth sampled beside it, and an evaluation under way."""
    with Store.open(tmp_path) as store:
        store.create_run(run_row(RUN, "queries", RunState.RUNNING, tmp_path))
        recorder = store.recorder(RUN, files=False)
        recorder.run(step=2)
        rewards = ((0.0, 1.0), (1.0, 1.0), (0.5, 1.0))
        for group_id, (step, pair) in enumerate(zip((1, 1, 2), rewards, strict=True)):
            recorder.group(GroupRow(RUN, group_id, GroupState.TRAINED, "t", 0, step=step, attempts_done=2))
            for attempt, reward in enumerate(pair):
                recorder.attempt(
                    AttemptRow(RUN, group_id, attempt, AttemptState.DONE, reward=reward, ended_at=5.0)
                )
        ready = GroupRow(RUN, 3, GroupState.READY, "t", 0, step=3, attempts_done=2, ended_at=21.0)
        recorder.group(ready)
        recorder.group(GroupRow(RUN, 4, GroupState.RUNNING, "t", 0, step=3))
        recorder.attempt(AttemptRow(RUN, 4, 0, AttemptState.ACTING, started_at=12.0))
        recorder.attempt(AttemptRow(RUN, 4, 1, AttemptState.SAMPLING, started_at=11.0))
        recorder.attempt(AttemptRow(RUN, 4, 2, AttemptState.QUEUED))
        recorder.group(GroupRow(RUN, 5, GroupState.READY, "t", 0, step=4, attempts_done=2, ended_at=22.0))
        recorder.group(GroupRow(RUN, 6, GroupState.RUNNING, "t", 0, step=4))
        recorder.attempt(AttemptRow(RUN, 6, 0, AttemptState.ACTING, started_at=10.0))
        for group_id, state in ((-1, GroupState.EVALUATED), (-2, GroupState.RUNNING)):
            recorder.group(GroupRow(RUN, group_id, state, "held", 0, step=2, eval_id="step-000002"))
        recorder.attempt(AttemptRow(RUN, -1, 0, AttemptState.DONE, reward=0.25, ended_at=3.0))
        recorder.attempt(AttemptRow(RUN, -2, 0, AttemptState.GRADING, started_at=14.0))
        recorder.flush_blocking()
        yield store.reader()


def test_the_step_in_hand_is_told_apart_from_an_evaluation(reader: StoreReader) -> None:
    found = reader.progress(RUN)
    assert found.training == {AttemptState.ACTING: 1, AttemptState.SAMPLING: 1, AttemptState.QUEUED: 1}
    assert found.evaluating == {AttemptState.GRADING: 1}
    assert (found.ready_groups, found.ready_attempts, found.ready_at) == (1, 2, 21.0)
    assert found.oldest is not None
    assert (found.oldest.group_id, found.oldest.attempt) == (4, 1)


def test_a_run_without_groups_has_no_progress(reader: StoreReader) -> None:
    found = reader.progress("20261129-120000-none")
    assert (found.training, found.ready_attempts, found.oldest) == ({}, 0, None)


def test_groups_come_in_the_order_in_which_they_began(reader: StoreReader) -> None:
    assert [row.group_id for row in reader.training_groups(RUN)] == [0, 1, 2, 3, 4, 5, 6]
    assert [row.group_id for row in reader.training_groups(RUN, 2)] == [5, 6]
    assert [row.group_id for row in reader.training_groups(RUN, step=1)] == [0, 1]
    assert [row.group_id for row in reader.eval_groups(RUN, "step-000002")] == [-1, -2]


def test_rewards_are_counted_without_those_of_evaluations(reader: StoreReader) -> None:
    assert reader.reward_counts(RUN) == {0.0: 1, 0.5: 1, 1.0: 4}
    assert reader.reward_counts(RUN, step=1) == {0.0: 1, 1.0: 3}
    assert reader.reward_counts(RUN, step=3) == {}


def test_attempts_by_reward(reader: StoreReader) -> None:
    best = reader.attempts_between(RUN, 0.9, 1.0)
    assert [(row.group_id, row.attempt) for row in best] == [(2, 1), (1, 0), (1, 1), (0, 1)]
    assert len(reader.attempts_between(RUN, 0.0, 1.0, limit=2)) == 2
    assert [row.group_id for row in reader.attempts_between(RUN, 0.0, 0.4, step=1)] == [0]
