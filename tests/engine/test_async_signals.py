"""An async run's process is killed or told to end with groups in flight, and the run goes on in another process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from engine.store import Store
from engine.store.rows import CheckpointState, GroupState, RunState
from tests.engine.async_story import ASYNC, GROUPS, Story
from tests.engine.own_process import said_until, started, to_end
from tests.engine.resumable import make_project


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("number", "status", "state"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM, RunState.STOPPED),
        (signal.SIGKILL, -signal.SIGKILL, RunState.INTERRUPTED),
    ],
)
def test_no_step_is_lost_and_no_group_trained_twice(
    tmp_path: Path, number: int, status: int, state: RunState
) -> None:
    config = make_project(tmp_path)
    sets = (*ASYNC, "output.checkpoint_every=2", "training.max_steps=5000")
    running = started(tmp_path, "run", str(config), *(f"--set={each}" for each in sets))
    said = said_until(running, "checkpoint step-000004 is saved")
    running.send_signal(number)
    running.communicate(timeout=120)
    assert running.returncode == status, said
    with Store.open(tmp_path) as store:
        store.reconcile()
        (run,) = store.reader().runs()
        rows = store.reader().checkpoints(run.run_id)
        saved = max((row for row in rows if row.state is CheckpointState.SAVED), key=lambda row: row.step)
    assert run.state is state
    before = Story.of(tmp_path, run.run_id)
    frontier = saved.cursor["next_group"]
    assert sum(group < frontier for group, _ in before.trained) == GROUPS * saved.step
    if number == signal.SIGTERM:
        assert saved.step == run.step  # nothing that was trained is lost
    else:
        # Killed with groups in flight: they are sampled again, under their own ids.
        assert before.groups[-1].group_id >= frontier
        assert {row.state for row in before.groups} <= {
            GroupState.TRAINED, GroupState.REJECTED, GroupState.READY, GroupState.RUNNING, GroupState.LOST
        }  # fmt: skip
    steps = run.step + 2
    value = to_end(tmp_path, "run", "--resume", run.run_dir, f"--set=training.max_steps={steps}")
    assert (value["run"], value["status"], value["steps"]) == (run.run_id, "done", steps)
    after = Story.of(tmp_path, run.run_id)
    after.check(steps=steps, bound=1)
    kept = [(group, step) for group, step in before.trained if group < frontier]
    assert after.trained[: len(kept)] == kept
