"""A finished run in a project's store, and another whose Loops is an odd server."""

from __future__ import annotations

from typing import Any

import pytest

from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, RunState
from tests.loops_admin.odd_server import Answer, Asked, OddServer
from tests.store.conftest import make_host, make_run

RUN = "20261129-143501-k3f9"
NAME = "step-000001"


def remote(store: Store, odd: OddServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A second run, on the odd server, whose checkpoint can be deployed; its id."""
    run_id = "20261129-150000-rrrr"
    monkeypatch.setenv("BASETEN_API_KEY", "secret-key-value")
    if store.reader().get_run(run_id) is None:
        directory = store.project_dir
        store.create_run(make_run(directory, run_id, loops_run_id="r9", scope="dedicated", step=1))
        store.claim(run_id, make_host())
        store.end_run(run_id, "host-1", RunState.DONE, None)
    recorder = store.recorder(run_id)
    recorder.run(loops_url=odd.url, loops_state="ACTIVE", loops_since=100.0, loops_until=None)
    point = CheckpointRow(run_id, NAME, 1, CheckpointState.SAVED, "end", 1.0, loops_run_id="r9")
    point.sampler_path = f"bt://loops:r9/sampler_weights/{NAME}"
    recorder.checkpoint(point)
    recorder.flush_blocking()
    return run_id


def remote_answer(deploy: Answer) -> Any:
    checkpoint = {
        "id": "c9",
        "run_id": "r9",
        "checkpoint_id": NAME,
        "checkpoint_type": "lora",
        "created_at": "2026-11-29T10:00:00+00:00",
        "base_model": "m",
        "lora_adapter_config": {"r": 4},
        "size_bytes": 10,
        "target": "sampler",
    }
    kind = {
        "id": "H100:1",
        "name": "one H100",
        "memory_limit_mib": 1,
        "millicpu_limit": 1,
        "gpu_count": 1,
        "gpu_type": "H100",
        "gpu_memory_limit_mib": 1,
    }

    def answer(asked: Asked) -> Answer:
        if asked.path.startswith("/v1/instance_types"):
            return Answer.of({"instance_types": [kind]})
        return deploy if asked.method == "POST" else Answer.of({"checkpoints": [checkpoint]})

    return answer
