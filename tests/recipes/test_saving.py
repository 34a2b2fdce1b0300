"""Checkpoints: when, in which order with the store, and what failures do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.loops.errors import SaveFailed
from engine.loops.saving import Saving
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.saving import Saver
from engine.store import Store
from engine.store.rows import CheckpointRow, CheckpointState, StepRow
from tests.store.conftest import make_run

RUN = "20261129-143501-k3f9"


class Loops:
    """A session that saves when it is told to, and keeps what it saw."""

    loops_run_id = "loops-1"

    def __init__(self, store: Store) -> None:
        self._reader = store.reader()
        self.asked: list[tuple[str, CheckpointState]] = []  # with what the store said of it at that time
        self.go = asyncio.Event()
        self.go.set()
        self.refuse: str | None = None
        self.fail: str | None = None

    async def save(self, name: str) -> Loops:
        (row,) = [row for row in self._reader.checkpoints(RUN) if row.name == name]
        self.asked.append((name, row.state))
        if self.refuse is not None:
            raise SaveFailed(self.refuse)
        self.name = name
        return self

    async def paths(self) -> tuple[str, str]:
        await self.go.wait()
        if self.fail is not None:
            raise SaveFailed(self.fail)
        return f"bt://loops:r/weights/{self.name}", f"bt://loops:r/sampler_weights/{self.name}"

    async def saved_bytes(self, name: str) -> int:
        return 17


class Bench:
    """A run that stands where it is put."""

    def __init__(self, store: Store, every: int | None, resume_from: CheckpointRow | None = None) -> None:
        self.control, self.loops = RunControl(), Loops(store)
        self.recorder, self.reader = store.recorder(RUN, files=False), store.reader()
        handle = RunHandle(
            RUN, self.recorder, self.control, LoopsEndpoint("local", None, None), resume_from=resume_from
        )
        self.saver = Saver(handle, every)
        self.answers: list[tuple[str, bool, str]] = []

    def ask(self, who: str) -> None:
        self.control.save(lambda done, text: self.answers.append((who, done, text)))

    async def step(self, number: int) -> None:
        row = StepRow(RUN, number, "done", 1.0, 2.0, number, {"reward/mean_with_unusable": number / 10})
        session: Any = self.loops
        self.saver.stands(session, row, {"next_group": 2 * number})
        await self.saver.after_step()

    async def rows(self) -> dict[str, CheckpointRow]:
        await self.recorder.flush()
        return {row.name: row for row in self.reader.checkpoints(RUN)}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with Store.open(tmp_path) as opened:
        opened.create_run(make_run(tmp_path))
        yield opened


async def test_every_second_step_and_the_last_one(store: Store) -> None:
    bench = Bench(store, 2)
    for number in (1, 2, 3, 4, 5):
        await bench.step(number)
    await bench.saver.last("end")
    rows = await bench.rows()
    assert {name: row.why for name, row in rows.items()} == {
        "step-000002": "every",
        "step-000004": "every",
        "step-000005": "end",
    }
    # The intent is in the file before Loops is asked.
    assert bench.loops.asked == [(name, CheckpointState.SAVING) for name in sorted(rows)]
    row = rows["step-000004"]
    assert (row.state, row.trainer_path, row.size_bytes, row.loops_run_id) == (
        CheckpointState.SAVED,
        "bt://loops:r/weights/step-000004",
        17,
        "loops-1",
    )
    assert (row.policy_version, row.reward_mean, row.cursor) == (4, 0.4, {"next_group": 8})
    await bench.saver.last("end")
    assert len(bench.loops.asked) == 3


async def test_the_next_step_does_not_wait_for_a_checkpoint(store: Store) -> None:
    bench = Bench(store, 1)
    bench.loops.go.clear()
    await asyncio.wait_for(bench.step(1), 60)
    assert (await bench.rows())["step-000001"].state is CheckpointState.SAVING
    second = asyncio.create_task(bench.step(2))
    await asyncio.sleep(0)
    assert bench.loops.asked == [("step-000001", CheckpointState.SAVING)]  # one at a time
    bench.loops.go.set()
    await second
    await bench.saver.last("end")
    assert [row.state for row in (await bench.rows()).values()] == [CheckpointState.SAVED] * 2


async def test_requests_are_answered_once_each(store: Store) -> None:
    bench = Bench(store, None)
    bench.ask("early")
    await bench.saver.asked()
    bench.ask("one")
    bench.ask("two")
    await bench.step(1)
    bench.ask("three")
    await bench.saver.asked()
    bench.ask("last")
    await bench.saver.last("stop")
    assert bench.answers == [
        ("early", False, "no step is finished yet: there is nothing to save"),
        ("one", True, "saved as step-000001"),
        ("two", True, "step-000001 is saved already"),
        ("three", True, "step-000001 is saved already"),
        ("last", True, "step-000001 is saved already"),
    ]
    assert (await bench.rows())["step-000001"].why == "asked"


@pytest.mark.parametrize("way", ["refuse", "fail"])
async def test_a_failure_is_told_and_the_run_goes_on(store: Store, way: str) -> None:
    bench = Bench(store, 1)
    setattr(bench.loops, way, "Loops at x answered 507 while saving step-000001: disk full")
    bench.ask("one")
    await bench.step(1)
    await bench.saver.last("end")  # tries the same step once more
    row = (await bench.rows())["step-000001"]
    assert row.state is CheckpointState.FAILED
    assert row.error is not None
    assert row.error.endswith("disk full")
    assert bench.answers == [("one", False, f"step-000001 could not be saved: {row.error}")]
    errors = [line for line in bench.reader.log(RUN) if line.level == "error"]
    assert len(errors) == len(bench.loops.asked) == 2
    setattr(bench.loops, way, None)
    await bench.step(2)
    await bench.saver.last("end")
    assert (await bench.rows())["step-000002"].state is CheckpointState.SAVED


async def test_a_checkpoint_that_takes_too_long_holds_no_end_up(store: Store) -> None:
    bench = Bench(store, None)
    await bench.step(1)
    bench.loops.go.clear()
    async with asyncio.timeout(60):
        await bench.saver.last("interrupt", timeout=0.05)
        await bench.saver.close()
    row = (await bench.rows())["step-000001"]
    assert (row.state, row.error) == (CheckpointState.FAILED, "the run ended before Loops had saved it")


async def test_where_a_run_was_resumed_is_saved_already(store: Store) -> None:
    point = CheckpointRow(RUN, "step-000004", 4, CheckpointState.SAVED, "stop", 1.0)
    bench = Bench(store, 2, point)
    bench.ask("one")
    await bench.saver.last("stop")
    assert bench.answers == [("one", True, "step-000004 is saved already")]
    assert bench.loops.asked == []


async def test_an_address_is_part_of_a_checkpoint() -> None:
    class Answer:
        def __init__(self, path: str) -> None:
            self.path = path

        async def result_async(self) -> Answer:
            return self

    whole = Saving("step-000001", Answer("bt://a"), Answer("bt://b"), None)
    assert await whole.paths() == ("bt://a", "bt://b")
    with pytest.raises(SaveFailed, match="step-000001 without saying where"):
        await Saving("step-000001", Answer(""), Answer("bt://b"), None).paths()
