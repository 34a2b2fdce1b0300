"""Many Blaxel sandboxes at once, each with one command, against the SDK called directly in the same run.

``uv run python -m tests.bench.blaxel_start [--sandboxes 32] [--rounds 3] [--many 500] [--json]``

The emulator runs in a process of its own; what it costs to make a sandbox there is in both times.

* ``direct``: ``SandboxInstance.create`` and one waited ``exec`` of ``true``, all at once;
* ``ours``: a lease (journal, limits), the sandbox and ``exec("true")``, all at once.

For each: wall time, the longest time that the event loop was not served, and the longest processor time that its
thread spent meanwhile, which the other programs of a busy machine do not change. With ``--many`` so many sandboxes are
made and released 32 at a time, and open files, threads and memory are counted before and after (memory after a first
such round, which warms what stays).

Bounds: ours / direct at most 1.5; the loop unserved at most 50 ms; files and threads as before.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from engine.config.spending import BlaxelSettings
from engine.sandboxes import SandboxSettings
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.naming import new_name
from engine.store import Store
from tests.blaxel_emulator.serving import EmulatorProcess

WALL_BOUND, BLOCK_BOUND_MS = 1.5, 50.0
FAST = BlaxelSettings.model_validate({"max_live": 1000, "creates_per_second": 1000.0})


@dataclass
class Measured:
    """Milliseconds."""

    wall: float
    unserved: float
    busy: float


class Watch:
    """Ticks on the loop, and remembers the longest pause between two ticks."""

    def __init__(self) -> None:
        self.unserved = self.busy = 0.0

    async def run(self) -> None:
        last, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, spent = time.perf_counter(), time.thread_time()
            self.unserved = max(self.unserved, now - last - 0.001)
            self.busy = max(self.busy, spent - used)
            last, used = now, spent


async def measured[T](work: Callable[[], Awaitable[T]]) -> tuple[Measured, T]:
    watch = Watch()
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0.05)
    watch.unserved = watch.busy = 0.0
    began = time.perf_counter()
    result = await work()
    wall = time.perf_counter() - began
    watching.cancel()
    return Measured(wall * 1000, watch.unserved * 1000, watch.busy * 1000), result


async def direct(number: int) -> list[Any]:
    from blaxel.core import SandboxInstance

    async def one() -> Any:
        box = await SandboxInstance.create({"name": new_name("direct"), "memory": 512, "ttl": "1h"})
        done = await box.process.exec({"command": "true", "wait_for_completion": True})
        assert done.status == "completed", done.status
        return box

    return await asyncio.gather(*(one() for _ in range(number)))


async def ours(sandboxes: RunSandboxes, number: int) -> list[Any]:
    async def one(place: int) -> Any:
        source = sandboxes.source(0, place, lambda *_: None)
        leased = await source.acquire(300.0)
        done = await leased.sandbox.exec("true", timeout=60)
        assert done.ok, done
        return source, leased

    return await asyncio.gather(*(one(place) for place in range(number)))


async def release(held: list[Any]) -> None:
    await asyncio.gather(*(source.release(leased) for source, leased in held))


def resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def counted() -> dict[str, float]:
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "rss_mb": round(resident_mb(), 1),
    }


async def measure(number: int, rounds: int, many: int) -> dict[str, Any]:
    found: dict[str, Any] = {"sandboxes": number, "direct": [], "ours": []}
    with tempfile.TemporaryDirectory() as place, EmulatorProcess(Path(place) / "emulator.log") as service:
        os.environ.update(service.environment())
        store = Store.open(Path(place))
        settings = SandboxSettings(provider="blaxel", memory_mb=512)
        sandboxes = await RunSandboxes.open(
            store,
            Path(place),
            settings,
            attempt_seconds=600,
            run_id="20260101-000000-benc",
            host_id=None,
            blaxel=FAST,
        )
        await release(await ours(sandboxes, 2))  # imports, first connections
        for _ in range(rounds):
            times, boxes = await measured(partial(direct, number))
            found["direct"].append(asdict(times))
            await asyncio.gather(*(box.delete() for box in boxes))
            for box in boxes:
                await box.process._client.aclose()
            times, held = await measured(partial(ours, sandboxes, number))
            found["ours"].append(asdict(times))
            await release(held)
        if many:
            await release(await ours(sandboxes, 32))
            before = counted()
            for made in range(0, many, 32):
                await release(await ours(sandboxes, min(32, many - made)))
            found["many"] = {"sandboxes": many, "before": before, "after": counted()}
        await sandboxes.close()
        found["closed"] = counted()
        store.close()
    for name in ("direct", "ours"):
        found[f"{name}_median"] = {
            key: round(median(one[key] for one in found[name]), 1) for key in ("wall", "unserved", "busy")
        }
    found["ratio"] = round(found["ours_median"]["wall"] / found["direct_median"]["wall"], 2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sandboxes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = asyncio.run(measure(chosen.sandboxes, chosen.rounds, chosen.many))
    if chosen.json:
        print(json.dumps(found))
    else:
        for name in ("direct", "ours"):
            row = found[f"{name}_median"]
            print(
                f"{name:7} wall {row['wall']:7.1f} ms   loop unserved {row['unserved']:6.1f}   busy {row['busy']:6.1f}"
            )
        print(f"ours / direct: {found['ratio']} (bound {WALL_BOUND})")
        for key in ("many", "closed"):
            if key in found:
                print(key, found[key])
    good = found["ratio"] <= WALL_BOUND and found["ours_median"]["busy"] <= BLOCK_BOUND_MS
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
