"""Ending the Loops run of a run that is going on: by us, and behind our back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.local_server import LocalServer
from engine.hosting.loops_runs import deactivate
from engine.loops.management import LoopsManagement
from engine.store import Store
from engine.store.rows import AttemptState, CheckpointState, RunState
from tests.cli.conftest import Call, call, project_dir
from tests.engine.test_real_runs import command, environment

__all__ = ["call", "project_dir"]

IN_FLIGHT = {
    AttemptState.QUEUED,
    AttemptState.PROVISIONING,
    AttemptState.SETUP,
    AttemptState.SAMPLING,
    AttemptState.ACTING,
    AttemptState.GRADING,
}


class Going:
    """A run of the smallest example in a process of its own, past its first step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            command(
                "run",
                "examples/in_process_direct/train.toml",
                "--json",
                "--set=training.max_steps=5000",
                "--set=training.max_consecutive_unusable_groups=50000",
            ),
            cwd=directory,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        said: list[str] = []
        for line in self.process.stderr:  # ends with the process, at the latest
            said.append(line)
            if "step 1/" in line:
                break
        else:
            raise AssertionError("".join(said))
        with Store.open(directory) as store:
            (self.run,) = store.reader().runs()

    def end(self) -> tuple[int, dict[str, Any]]:
        """Its exit status and its JSON value, once it has ended by itself."""
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, json.loads(out)


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    running = Going(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.communicate(timeout=30)


def left_in_flight(store: Store, run_id: str) -> int:
    return sum(
        attempt.state in IN_FLIGHT
        for group in store.reader().groups(run_id, 10_000)
        for attempt in store.reader().attempts(run_id, group.group_id)
    )


def test_a_live_run_saves_when_it_is_asked(call: Call, going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(going.directory)
    said = call("checkpoints", going.run.run_id, "save", "--json")
    assert said.status == 0, said.err
    assert said.value["answer"].startswith("saved as step-")
    (saved,) = call("checkpoints", going.run.run_id, "--json").value
    assert (saved["name"], saved["why"], saved["state"]) == (said.value["answer"][9:], "asked", "saved")


async def test_deactivating_a_live_run_lets_it_end_cleanly_first(going: Going) -> None:
    said: list[str] = []
    (ended,) = await deactivate(going.directory, going.run.run_id, said.append)
    assert ended.error is None
    assert ended.was_active
    assert said[0].endswith("asking it to end, with what it has finished saved")
    assert said[1] == f"Run {going.run.run_id} has ended"
    status, value = going.end()
    assert (status, value["status"], value["error"]) == (3, "aborted", None)
    with Store.open(going.directory) as store:
        row = store.reader().run(going.run.run_id)
        assert (row.state, row.loops_state) == (RunState.ABORTED, "INACTIVE")
        assert row.loops_since is not None
        assert row.loops_until is not None
        assert left_in_flight(store, row.run_id) == 0
        assert store.reader().lease_counts() == {}
        # Where the abort came in the middle of an update, the trainer stands after no whole step, and none is saved.
        points = store.reader().checkpoints(row.run_id)
        assert {(point.state, point.step) for point in points} <= {(CheckpointState.SAVED, row.step)}


async def test_a_loops_run_that_ends_behind_its_back_ends_the_run_at_once_with_one_sentence(
    going: Going,
) -> None:
    server = LocalServer(going.directory)
    address = server.start()
    assert going.run.loops_run_id is not None
    async with LoopsManagement(address.url, address.key) as loops:
        await loops.deactivate_run(going.run.loops_run_id)
    status, value = going.end()
    server.close()
    assert (status, value["status"]) == (1, "failed")
    assert f"run {going.run.loops_run_id} is deactivated" in value["error"]
    assert "\n" not in value["error"]
    with Store.open(going.directory) as store:
        assert left_in_flight(store, going.run.run_id) == 0
