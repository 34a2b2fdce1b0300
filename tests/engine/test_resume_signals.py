"""A run's process is told to end, or is killed, and the run goes on in another one."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from engine.store import Store
from engine.store.rows import CheckpointState, RunState
from tests.engine.own_process import said_until, started, to_end
from tests.engine.resumable import make_project


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("number", "status", "state", "why"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM, RunState.STOPPED, "interrupt"),
        (signal.SIGKILL, -signal.SIGKILL, RunState.INTERRUPTED, "every"),
    ],
)
def test_it_goes_on_in_another_process(
    tmp_path: Path, number: int, status: int, state: RunState, why: str
) -> None:
    config = make_project(tmp_path)
    running = started(
        tmp_path, "run", str(config), "--set=output.checkpoint_every=2", "--set=training.max_steps=5000"
    )
    said = said_until(running, "checkpoint step-000002 is saved")
    running.send_signal(number)
    running.communicate(timeout=120)
    assert running.returncode == status, said
    with Store.open(tmp_path) as store:
        store.reconcile()
        reader = store.reader()
        (run,) = reader.runs()
        assert run.state is state
        saved = [row for row in reader.checkpoints(run.run_id) if row.state is CheckpointState.SAVED]
        assert saved[0].why == why
        if state is RunState.STOPPED:
            assert saved[0].step == run.step  # nothing that was trained is lost
    steps = run.step + 2
    value = to_end(tmp_path, "run", "--resume", run.run_dir, f"--set=training.max_steps={steps}")
    assert (value["run"], value["status"], value["steps"]) == (run.run_id, "done", steps)
    lines = (Path(run.run_dir) / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))
    assert [json.loads(line)["policy_version"] for line in lines] == list(range(1, steps + 1))
