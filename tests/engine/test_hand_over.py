"""A run moves from this process into one of its own, with the real engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from engine.hosting.runs_here import RunsHere
from engine.store import Store
from engine.store.rows import RunRow, RunState
from tests.engine.resumable import make_project, until_step

STEPS = 16
"""More than pass between the look that sees the first one done and the hand-over, on a busy machine."""


async def until_done(store: Store, run_id: str) -> RunRow:
    reader = store.reader()
    async with asyncio.timeout(120):
        while True:
            store.reconcile()
            row = reader.run(run_id)
            if row.state.final:
                return row
            await asyncio.sleep(0.1)


async def test_a_run_goes_on_in_a_process_of_its_own(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    here = RunsHere(tmp_path)
    try:
        run_id = await asyncio.to_thread(here.start, config, [f"training.max_steps={STEPS}"])
        with Store.open(tmp_path) as store:
            await until_step(store, 1)
            await asyncio.to_thread(here.hand_over, run_id, 90.0)
            assert here.live() == []
            taken = store.reader().run(run_id)
            host = store.reader().host(taken.host_id)
            assert host is not None
            assert host.kind == "detached"
            row = await until_done(store, run_id)
            whys = {checkpoint.why for checkpoint in store.reader().checkpoints(run_id)}
    finally:
        await asyncio.to_thread(here.close)
    assert (row.state, row.step, row.error) == (RunState.DONE, STEPS, None)
    assert whys == {"hand-over", "end"}
    steps = (Path(row.run_dir) / "steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in steps] == list(range(1, STEPS + 1))
