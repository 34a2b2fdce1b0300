"""What a checkpoint costs a run, beside what the SDK's own save calls take in the same run.

``python -m tests.bench.saving [--steps 20] [--json]``

A small local run saves after every step. For each checkpoint three times are taken: of the SDK's calls
(``save_state`` and ``save_weights_for_sampler``, from submission to result), from the intent's row to the row that says
saved, and of the loop that trains being held up. The exit status is 0 if neither of the last two is more than 10 %
above the first, over the whole run.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from engine.loops.saving import Saving
from engine.loops.session import LoopsSession
from engine.recipes.saving import Saver
from engine.store.recorder import RunRecorder
from engine.store.rows import CheckpointRow, CheckpointState
from tests.engine.resumable import make_project, open_project
from tests.faults.result import tell

ALLOWED = 1.10


class Watch:
    """Seconds by checkpoint: of the SDK, of the whole, and of the loop that waited."""

    def __init__(self) -> None:
        self.sdk: dict[str, float] = {}
        self.whole: dict[str, float] = {}
        self.held: list[float] = []
        self._asked: dict[str, float] = {}
        self._meant: dict[str, float] = {}

    def install(self) -> None:
        """Take the times in the classes themselves; this process does nothing else."""
        save, paths, checkpoint = LoopsSession.save, Saving.paths, RunRecorder.checkpoint

        async def timed_save(session: LoopsSession, name: str) -> Saving:
            self._asked[name] = time.perf_counter()
            return await save(session, name)

        async def timed_paths(saving: Saving) -> tuple[str, str]:
            found = await paths(saving)
            self.sdk[saving.name] = time.perf_counter() - self._asked[saving.name]
            return found

        def timed_checkpoint(recorder: RunRecorder, row: CheckpointRow) -> None:
            now = time.perf_counter()
            if row.state is CheckpointState.SAVING:
                self._meant[row.name] = now
            checkpoint(recorder, row)
            if row.state is CheckpointState.SAVED:
                self.whole.setdefault(row.name, time.perf_counter() - self._meant[row.name])

        LoopsSession.save, Saving.paths = timed_save, timed_paths  # type: ignore[method-assign]
        RunRecorder.checkpoint = timed_checkpoint  # type: ignore[method-assign]
        Saver.after_step = self._timed(Saver.after_step)  # type: ignore[method-assign]
        Saver.last = self._timed(Saver.last)  # type: ignore[method-assign]

    def _timed(self, method: Callable[..., Awaitable[None]]) -> Any:
        @functools.wraps(method)
        async def timed(*arguments: Any) -> None:
            begun = time.perf_counter()
            await method(*arguments)
            self.held.append(time.perf_counter() - begun)

        return timed


async def run(directory: Path, steps: int) -> None:
    project = open_project(
        make_project(directory), f"training.max_steps={steps}", "output.checkpoint_every=1"
    )
    try:
        await project.train(project_dir=directory)
    finally:
        project.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    watch = Watch()
    watch.install()
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(run(Path(place), chosen.steps))
    sdk, whole, held = sum(watch.sdk.values()), sum(watch.whole.values()), sum(watch.held)
    result = {
        "checkpoints": len(watch.sdk),
        "sdk_ms_median": round(1000 * statistics.median(watch.sdk.values()), 2),
        "sdk_seconds": round(sdk, 4),
        "whole_seconds": round(whole, 4),
        "held_seconds": round(held, 4),
        "whole_over_sdk": round(whole / sdk, 4),
        "held_over_sdk": round(held / sdk, 4),
        "ok": len(watch.sdk) == chosen.steps and max(whole, held) <= ALLOWED * sdk,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
