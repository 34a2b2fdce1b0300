"""Resuming after Loops has lost a checkpoint: told before anything changes, and what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hosting.checkpoints import refresh_checkpoints
from engine.hosting.errors import ResumeRefused
from engine.hosting.resuming import load_resumed, require_resumable
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, LeaseState, RunRow
from tests.hosting.two_steps import ended, kept, leave_lease
from tests.loops_admin.keeps_checkpoints import KeepsCheckpoints

__all__ = ["ended", "kept"]


async def test_a_checkpoint_that_loops_no_longer_has_is_told_before_anything_changes(
    ended: RunRow, tmp_path: Path, kept: KeepsCheckpoints
) -> None:
    with Store.open(tmp_path) as store:  # an older one is left
        recorder = store.recorder(ended.run_id, files=False)
        older = CheckpointRow(ended.run_id, "step-000001", 1, CheckpointState.SAVED, "every", 1.0)
        older.loops_run_id, older.trainer_path = "loops-0", "bt://loops:loops-0/weights/step-000001"
        recorder.checkpoint(older)
        leave_lease(store, ended, "local")
        recorder.close()
        before = store.reader().run(ended.run_id)
    project, resumption = load_resumed(ended.run_id, ["training.max_steps=40"], tmp_path)
    kept.addresses = ["bt://loops:loops-0/weights/step-000001"]
    with pytest.raises(ResumeRefused) as refused:
        await require_resumable(project, resumption, tmp_path)
    assert f"no longer has step-000002 of run {ended.run_id}; it still has step-000001" in str(refused.value)
    assert f"checkpoints {ended.run_id} --refresh` takes note" in str(refused.value)
    assert "\n" not in str(refused.value)
    kept.addresses = []
    with pytest.raises(ResumeRefused, match="none of that run's others either; start a new run"):
        await require_resumable(project, resumption, tmp_path)
    project.close()
    with Store.open(tmp_path) as store:
        assert store.reader().run(ended.run_id) == before
        assert [row.state for row in store.reader().leases()] == [LeaseState.ACTIVE]


async def test_after_a_refresh_it_goes_on_from_the_one_that_is_left(
    ended: RunRow, tmp_path: Path, kept: KeepsCheckpoints
) -> None:
    with Store.open(tmp_path) as store:
        recorder = store.recorder(ended.run_id, files=False)
        older = CheckpointRow(ended.run_id, "step-000001", 1, CheckpointState.SAVED, "every", 1.0)
        older.loops_run_id, older.trainer_path = "loops-0", "bt://loops:loops-0/weights/step-000001"
        recorder.checkpoint(older)
        recorder.close()
    kept.addresses = ["bt://loops:loops-0/weights/step-000001"]
    states = {row.name: row.state for row in await refresh_checkpoints(tmp_path, ended.run_id)}
    assert states == {"step-000002": CheckpointState.DELETED, "step-000001": CheckpointState.SAVED}
    project, resumption = load_resumed(ended.run_id, (), tmp_path)
    project.close()
    assert resumption.checkpoint is not None
    assert resumption.checkpoint.name == "step-000001"
    # A list that was wrong once is put right by the next one.
    kept.addresses.append("bt://loops:loops-0/weights/step-000002")
    states = {row.name: row.state for row in await refresh_checkpoints(tmp_path, ended.run_id)}
    assert set(states.values()) == {CheckpointState.SAVED}


async def test_a_checkpoint_that_is_gone_in_part(
    ended: RunRow, tmp_path: Path, kept: KeepsCheckpoints
) -> None:
    """Its sampler weights are still there to use, but a resume no longer goes on from it."""
    with Store.open(tmp_path) as store:
        recorder = store.recorder(ended.run_id, files=False)
        (point,) = store.reader().checkpoints(ended.run_id)
        point.sampler_path = "bt://loops:loops-0/sampler_weights/step-000002"
        recorder.checkpoint(point)
        recorder.close()
    kept.addresses = ["bt://loops:loops-0/sampler_weights/step-000002"]
    for _ in range(2):  # and it stays known
        (row,) = await refresh_checkpoints(tmp_path, ended.run_id)
        assert (row.state, row.trainer_path) == (CheckpointState.SAVED, None)
        assert row.error == "Loops no longer has its trainer's state"
    project, resumption = load_resumed(ended.run_id, (), tmp_path)
    project.close()
    assert resumption.checkpoint is None
