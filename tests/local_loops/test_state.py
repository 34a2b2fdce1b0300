"""The state directory as a kill would leave it, at every moment of writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.local_loops import atomic_files
from engine.local_loops.checkpoints import (
    CheckpointBatch,
    TrainerState,
    read_adapter,
    read_trainer_state,
    replace_named,
)
from engine.local_loops.compute.interface import Adapter
from engine.local_loops.records import CheckpointRecord, RunRecord, now_iso
from engine.local_loops.state import StateError, StateStore


def _run() -> RunRecord:
    return RunRecord(
        id="run-1",
        session_id="session-1",
        name="n",
        base_model="m",
        model_dir="/m",
        lora_rank=1,
        seed=0,
        context=10,
        created_at=now_iso(),
        deployment_id="deployment-1",
        availability_model="dedicated",
    )


def _state(step: int) -> TrainerState:
    tensors = {"x.q_proj.lora_A.weight": np.full((1, 2), step, np.float32)}
    return TrainerState(Adapter(1, 2.0, tensors), step, {"steps": np.array([step], np.float32)})


def _publish(store: StateStore, run: RunRecord, step: int) -> None:
    """What the trainer does: a sampler checkpoint under one name, and its own state, in one batch."""

    def enter(record: CheckpointRecord) -> None:
        run.publish_count = run.live_version = step
        replace_named(run, record)
        run.live_checkpoint = record

    def keep(record: CheckpointRecord) -> None:
        run.autosave = record

    with CheckpointBatch(store, run) as batch:
        batch.write(_state(step), target="sampler", name="default", version=step, enter=enter)
        batch.write(_state(step), target="trainer", name="autosave", enter=keep, flush=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    made = StateStore(tmp_path / "state")
    made.open()
    yield made
    made.close()


def test_a_kill_at_any_moment_leaves_the_old_or_the_new(
    store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_session("session-1", now_iso())
    run = _run()
    store.save_run(run)
    _publish(store, run, 1)
    snapshots: list[Path] = []

    def before(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            target = tmp_path / f"killed-{len(snapshots)}"
            snapshots.append(target)
            shutil.copytree(store.directory, target)
            return real(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", before(os.fsync))
        patched.setattr(Path, "rename", before(Path.rename))
        patched.setattr(Path, "replace", before(Path.replace))
        patched.setattr(Path, "mkdir", before(Path.mkdir))
        removal = before(shutil.rmtree)
        patched.setattr("engine.local_loops.state.shutil.rmtree", removal)
        _publish(store, run, 2)
    assert len(snapshots) > 8
    versions = []
    for snapshot in snapshots:
        again = StateStore(snapshot)
        again.open()
        found = again.runs["run-1"]
        versions.append(found.live_version)
        assert again.sessions.keys() == {"session-1"}
        assert found.live_checkpoint is not None
        assert found.autosave is not None
        adapter = read_adapter(again.checkpoint_directory(found.live_checkpoint))
        assert adapter.tensors["x.q_proj.lora_A.weight"].tolist() == [[found.live_version] * 2]
        kept = read_trainer_state(again.checkpoint_directory(found.autosave), with_optimizer=True)
        assert (kept.step, kept.optimizer["steps"].tolist()) == (found.live_version, [found.live_version])
        directory = again.run_directory("run-1") / "checkpoints"
        assert {path.name for path in directory.iterdir()} == found.referenced()
        assert not list(snapshot.rglob(".tmp-*"))
        again.close()
    assert versions == sorted(versions)
    assert set(versions) == {1, 2}


def test_a_failed_write_leaves_nothing_behind(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run()
    store.save_run(run)
    _publish(store, run, 1)
    before = run.referenced()

    def full(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(atomic_files, "sync_path", full)
        with pytest.raises(OSError, match="No space left"):
            _publish(store, run, 2)
    assert (run.live_version, run.referenced()) == (1, before)
    directory = store.run_directory(run.id) / "checkpoints"
    assert {path.name for path in directory.iterdir()} == before
    _publish(store, run, 3)
    assert run.live_version == 3


def test_expired_checkpoints_are_dropped(store: StateStore) -> None:
    run = _run()
    store.save_run(run)
    with CheckpointBatch(store, run) as batch:
        batch.write(
            _state(1),
            target="trainer",
            name="brief",
            enter=lambda record: replace_named(run, record),
            expires_at=1.0,
        )
    assert run.find("trainer", "brief") is None
    store.drop_gone(run)
    assert run.checkpoints == []
    assert list((store.run_directory(run.id) / "checkpoints").iterdir()) == []


def test_a_checkpoint_whose_directory_was_removed_is_forgotten(store: StateStore) -> None:
    run = _run()
    store.save_run(run)
    with CheckpointBatch(store, run) as batch:
        for name in ("first", "second"):
            batch.write(
                _state(1), target="trainer", name=name, enter=lambda record: replace_named(run, record)
            )
    gone = run.find("trainer", "first")
    assert gone is not None
    shutil.rmtree(store.checkpoint_directory(gone))
    store.drop_gone(run)
    assert [record.name for record in run.checkpoints] == ["second"]


def test_a_directory_is_used_by_one_server(store: StateStore) -> None:
    with pytest.raises(StateError, match="in use by another server"):
        StateStore(store.directory).open()
