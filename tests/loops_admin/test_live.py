"""Ending the Loops run of a run that is going on: by us, and behind our back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.hosting.local_server import LocalServer
from engine.hosting.loops_runs import deactivate
from engine.loops.management import LoopsManagement
from engine.store import Store
from engine.store.rows import AttemptState, CheckpointState, RunState
from tests.cli.conftest import Call, call, project_dir
from tests.engine import resumable
from tests.engine.own_process import said_until, started

__all__ = ["call", "project_dir"]

IN_FLIGHT_SECONDS = 60.0
IN_FLIGHT = {
    AttemptState.QUEUED,
    AttemptState.PROVISIONING,
    AttemptState.SETUP,
    AttemptState.SAMPLING,
    AttemptState.ACTING,
    AttemptState.GRADING,
}


#: After the first update every attempt waits for a reply that never comes: no second update can begin.
HOLDS = (
    "    async def grade",
    "    async def after(self, reply: object) -> None:\n"
    "        if reply.sample.policy_version:\n"
    "            await asyncio.Event().wait()\n\n"
    "    async def grade",
)


def project_that_holds(directory: Path) -> str:
    """The small project whose attempts hold after its first step; its config."""
    config = resumable.make_project(directory)
    episode = resumable.EPISODE.replace(
        '        self.text = reply.content or ""\n',
        '        self.text = reply.content or ""\n        await self.after(reply)\n',
    ).replace(*HOLDS)
    (directory / "summing.py").write_text(f"import asyncio\n{episode}")
    return str(config)


class Going:
    """A run in a process of its own, past its first step; of the smallest example unless told otherwise."""

    def __init__(self, directory: Path, config: str = "examples/in_process_direct/train.toml") -> None:
        self.directory = directory
        self.process = started(
            directory,
            "run",
            config,
            "--json",
            "--set=training.max_steps=5000",
            "--set=training.max_consecutive_unusable_groups=50000",
        )
        said_until(self.process, "step 1/")
        with Store.open(directory) as store:
            (self.run,) = store.reader().runs()

    def end(self) -> tuple[int, dict[str, Any]]:
        """Its exit status and its JSON value, once it has ended by itself."""
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, json.loads(out)


@contextmanager
def ended_afterwards(running: Going) -> Iterator[Going]:
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.communicate(timeout=120)


@pytest.fixture
def going(tmp_path: Path) -> Iterator[Going]:
    with ended_afterwards(Going(tmp_path)) as running:
        yield running


@pytest.fixture
def sampling(tmp_path: Path) -> Iterator[Going]:
    """A run that stands after its first step, with attempts in flight that end only when it does."""
    with ended_afterwards(Going(tmp_path, project_that_holds(tmp_path))) as running:
        yield running


async def until_in_flight(going: Going) -> None:
    """Wait, bounded, until the attempts of its second step are in flight."""
    with Store.open(going.directory) as store:
        async with asyncio.timeout(IN_FLIGHT_SECONDS):
            while not left_in_flight(store, going.run.run_id):  # noqa: ASYNC110 - another process tells nobody
                await asyncio.sleep(0.05)


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


async def test_deactivating_a_live_run_lets_it_end_cleanly_first(sampling: Going) -> None:
    await until_in_flight(sampling)
    said: list[str] = []
    (ended,) = await deactivate(sampling.directory, sampling.run.run_id, said.append)
    assert ended.error is None
    assert ended.was_active
    assert said[0].endswith("asking it to end, with what it has finished saved")
    assert said[1] == f"Run {sampling.run.run_id} has ended"
    status, value = sampling.end()
    assert (status, value["status"], value["error"]) == (3, "aborted", None)
    with Store.open(sampling.directory) as store:
        row = store.reader().run(sampling.run.run_id)
        assert (row.state, row.loops_state) == (RunState.ABORTED, "INACTIVE")
        assert row.loops_since is not None
        assert row.loops_until is not None
        assert left_in_flight(store, row.run_id) == 0
        assert store.reader().lease_counts() == {}
        points = store.reader().checkpoints(row.run_id)
        assert [(point.state, point.step) for point in points] == [(CheckpointState.SAVED, 1)]
        assert row.step == 1


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
    told = (  # by the server to a call of the run, or by the SDK where it waits for a sampler that ended
        rf"run {going.run.loops_run_id} is deactivated"
        r"|the run's sampler at \S+ is deactivated, which ended it while publishing weights"
    )
    assert re.search(told, value["error"])
    assert "\n" not in value["error"]
    with Store.open(going.directory) as store:
        assert left_in_flight(store, going.run.run_id) == 0
