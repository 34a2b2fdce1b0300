"""How long grading takes when each suite takes a second: what the sandboxes and the verdict add to the tests themselves.

    uv run python -m tests.bench.grading [--attempts 64] [--at-once 4] [--json]

Every attempt is judged as an episode does it: a fresh local sandbox, a copy of the workspace, the suite (one that sleeps
for a second), the verdict, the release. ``at_once`` verdicts are under way at a time. The bound is on the wall time:
1.2 x (attempts / at_once) seconds. Measured on two cores shared with a load of 13: 1.19 with 4 at once, 1.27 with 8; what
is added to a suite is mostly a sandbox and a Python that start, and those need a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import tempfile
import time
from pathlib import Path

from engine.rewards.suite import Suite, run_suite
from engine.sandboxes.contract import SandboxSpec
from engine.sandboxes.local.provider import LocalProvider
from engine.sandboxes.naming import new_name
from engine.sandboxes.settings import SandboxSettings

BOUND = 1.2
SUITE = Suite(kind="command", command=["sleep", "1"], target="tests", seconds=60)
WORKSPACE = {"app.py": "def total(rows):\n    return 0\n", "tests/test_app.py": "import app\n"}
WRITES = {"app.py": "def total(rows):\n    return sum(rows)\n"}


async def measure(directory: Path, attempts: int, at_once: int) -> dict[str, float]:
    provider = LocalProvider(directory, SandboxSettings(memory_mb=256, disk_mb=16))
    report = await provider.probe()
    if not report.usable:
        raise SystemExit("; ".join(report.problems))
    slots = asyncio.Semaphore(at_once)
    longest = 0.0

    async def one() -> None:
        nonlocal longest
        async with slots:
            began = time.perf_counter()
            name = new_name("bench")
            try:
                sandbox = await provider.create(SandboxSpec(name=name, memory_mb=256))
                verdict = await run_suite(sandbox, WORKSPACE, WRITES, SUITE)
            finally:
                await provider.release(name)
            if not verdict.ok:
                raise SystemExit(f"a verdict went wrong: {verdict.reason}")
            longest = max(longest, time.perf_counter() - began)

    await one()  # what is only loaded once is not counted
    longest, began = 0.0, time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(attempts):
            group.create_task(one())
    seconds = time.perf_counter() - began
    await provider.aclose()
    least = math.ceil(attempts / at_once)
    return {
        "attempts": attempts,
        "at_once": at_once,
        "seconds": round(seconds, 2),
        "least_seconds": least,
        "ratio": round(seconds / (attempts / at_once), 3),
        "bound": BOUND,
        "longest": round(longest, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=64)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = asyncio.run(measure(Path(directory), chosen.attempts, chosen.at_once))
    if chosen.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
