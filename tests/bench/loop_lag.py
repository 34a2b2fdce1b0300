"""How late the engine's event loop is while many attempts run at once, through the SDK over HTTP.

    uv run python -m tests.bench.loop_lag [--attempts 256] [--turns 12] [--json]

``--attempts`` conversations with a tool (see ``tests.bench.engine_cost``) on latencies as in the schedule's benchmark:
log-normal, half a second for a reply and a seventh for a tool in the median. A server in a process of its own waits and
answers with canned tokens. The lag is what a run itself tells of it (``engine.recipes.rl.pace.LoopLag``): how late a
callback is that was due, over time. ``busy`` is the share of a core that this process used: near 1 the loop has more
work than it can do, and is late for that. On a busy machine the lag is the machine's; ``own_p99_ms`` counts of each only
as much as the loop's thread itself computed meanwhile. Bound: p99 at most 50 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.collecting import spare_what_stays
from engine.project import load
from engine.recipes.rl.pace import TICK_SECONDS, LoopLag, quantile
from engine.recipes.rl.parts import renderer_of
from engine.store.store import Store
from tests.bench.canned_sampler import CannedSampler
from tests.bench.engine_cost import canned_replies, open_engine, write_project
from tests.faults.result import tell

BOUND_MS = 50.0
LATENCY = (-0.9, 0.6)


class OwnLag(LoopLag):
    """Also how much of each lag the loop's thread spent computing."""

    def __init__(self) -> None:
        super().__init__()
        self.own: list[float] = []
        self._used = time.thread_time()

    def ticked(self, due: float) -> None:
        used = time.thread_time()
        own = max(min(time.monotonic() - due, used - self._used), 0.0)
        self._used = used
        while own >= 0.0:
            self.own.append(own)
            own -= TICK_SECONDS
        super().ticked(due)


async def measure(directory: Path, attempts: int, turns: int) -> dict[str, Any]:
    project = load(write_project(directory, attempts, turns, pauses=True), working_dir=directory)
    renderer = await asyncio.to_thread(renderer_of, project)
    with CannedSampler(canned_replies(renderer), LATENCY) as server, Store.open(directory) as store:
        engine = await open_engine(project, renderer, server.url, store)
        # A run has spoken to its trainer by now, and so has imported what a first request imports.
        await engine.session.sample([1], max_tokens=1, seed=None, affinity_key=None)
        spare_what_stays()  # as a run does
        lag = OwnLag()
        watching = asyncio.create_task(lag.watch())
        wall, cpu = time.monotonic(), time.process_time()
        await engine.step()
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        watching.cancel()
        await engine.session._served.close()
    project.close()
    figures = {f"{name.removeprefix('loop_lag_')}_ms": 1000 * value for name, value in lag.read().items()}
    return {
        "attempts": attempts,
        "calls": engine.calls,
        **{name: round(value, 1) for name, value in figures.items()},
        "own_p99_ms": round(1000 * quantile(sorted(lag.own), 0.99), 1),
        "seconds": round(wall, 1),
        "busy": round(cpu / wall, 2),
        "cpu_ms_per_call": round(1000 * cpu / engine.calls, 2),
        "load": round(os.getloadavg()[0], 1),
        "bound_ms": BOUND_MS,
        "ok": figures["p99_ms"] <= BOUND_MS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attempts", type=int, default=256)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = asyncio.run(measure(Path(scratch), chosen.attempts, chosen.turns))
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
