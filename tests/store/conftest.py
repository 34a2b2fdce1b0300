"""Rows with sensible defaults, and a store in a directory of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.store import Redactor, Store
from engine.store.processes import hostname, process_started
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    HostRow,
    RunRow,
    RunState,
    TranscriptRow,
)

SECRET = "bt-s3cr3t/value+1"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path, redactor=Redactor([SECRET])) as opened:
        yield opened


def make_run(project: Path, run_id: str = "20261129-143501-k3f9", **changes: Any) -> RunRow:
    values: dict[str, Any] = {
        "run_id": run_id,
        "name": "demo",
        "recipe": "rl",
        "state": RunState.CREATED,
        "created_at": time.time(),
        "config_path": str(project / "train.toml"),
        "config_toml": 'recipe = "rl"\n',
        "run_dir": str(project / "runs" / "demo" / run_id),
        "base_model": "builtin",
        "max_steps": 5,
        **changes,
    }
    return RunRow(**values)


def make_host(host_id: str = "host-1", **changes: Any) -> HostRow:
    values: dict[str, Any] = {
        "host_id": host_id,
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()),
        "hostname": hostname(),
        "kind": "headless",
        "started_at": time.time(),
        "heartbeat_at": time.time(),
        **changes,
    }
    return HostRow(**values)


def make_group(
    run_id: str, group_id: int, state: GroupState = GroupState.RUNNING, **changes: Any
) -> GroupRow:
    return GroupRow(run_id, group_id, state, task_id=f"task-{group_id}", task_index=group_id, **changes)


def make_attempt(
    run_id: str, group_id: int, attempt: int, state: AttemptState = AttemptState.SAMPLING, **changes: Any
) -> AttemptRow:
    return AttemptRow(run_id, group_id, attempt, state, **changes)


def make_transcript(run_id: str, group_id: int, attempt: int, *texts: str, **changes: Any) -> TranscriptRow:
    turns = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    values: dict[str, Any] = {"task_id": f"task-{group_id}", "reward": 1.0, "ending": "graded", **changes}
    return TranscriptRow(run_id, group_id, attempt, turns=turns, **values)
