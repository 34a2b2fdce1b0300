"""A run's process is told to end, or is killed, and the run goes on in another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.store import Store
from engine.store.rows import CheckpointState, RunState
from tests.engine.resumable import make_project


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "loops_tui", *words, "--json"]


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LOOPS_", "BASETEN_"))}
    return {**kept, "HF_HUB_OFFLINE": "1"}


def to_end(directory: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        command(*words),
        cwd=directory,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
    running = subprocess.Popen(
        command("run", str(config), "--set=output.checkpoint_every=2", "--set=training.max_steps=40"),
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    said: list[str] = []
    for line in running.stderr:  # ends with the process, at the latest
        said.append(line)
        if "checkpoint step-000002 is saved" in line:
            running.send_signal(number)
            break
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
