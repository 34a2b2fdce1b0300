"""How long a sandbox takes to be ready and to run its first command, against bubblewrap alone, in the same run.

``uv run python -m tests.bench.sandbox_start [--json] [--rounds N]``

Three things take turns, so that whatever else the machine does hits them alike:

* ``bare``: ``bwrap`` with all namespaces over the machine's own root, running ``true``;
* ``private``: ``bwrap`` with a private root as the sandbox has it (read-only system, /proc, /dev, bounded /work and
  /tmp), running ``true``;
* ``sandbox``: ``LocalProvider.create`` and a first ``exec("true")``.

The bound is on ``sandbox / private``: the same isolation without anything of ours. All times are milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from engine.sandboxes import SandboxSpec
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.local.inside import bubblewrap
from engine.sandboxes.naming import new_name

BOUND = 3.0


def run(program: str, words: list[str]) -> float:
    """Milliseconds until the program has ended."""
    started = time.perf_counter()
    pid = os.posix_spawn(program, words, {"PATH": "/usr/bin:/bin"})
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(words)} ended with status {status}")
    return (time.perf_counter() - started) * 1000


def private_words() -> list[str]:
    """bubblewrap's words for a root like the sandbox's."""
    words = ["bwrap", *bubblewrap.system_words()]
    for place in ("/work", "/tmp", "/dev/shm"):
        words += ["--size", str(64 << 20), "--tmpfs", place]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work", "--", "/bin/true"]


async def measure(project: Path, rounds: int) -> dict[str, list[float]]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit("bubblewrap is not installed")
    provider = LocalProvider(project)
    report = await provider.probe()
    if report.isolation != "bubblewrap":
        raise SystemExit(f"bubblewrap does not work here: {report}")
    times: dict[str, list[float]] = {
        "bare": [],
        "private": [],
        "create": [],
        "exec": [],
        "sandbox": [],
        "release": [],
    }
    bare = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent", "/bin/true"]
    for _ in range(rounds):
        times["bare"].append(await asyncio.to_thread(run, bwrap, bare))
        times["private"].append(await asyncio.to_thread(run, bwrap, private_words()))
        name = new_name("bench")
        started = time.perf_counter()
        box = await provider.create(SandboxSpec(name))
        created = time.perf_counter()
        done = await box.exec("true", timeout=60)
        ended = time.perf_counter()
        if not done.ok:
            raise SystemExit(f"the first command failed: {done}")
        await provider.release(name)
        times["create"].append((created - started) * 1000)
        times["exec"].append((ended - created) * 1000)
        times["sandbox"].append((ended - started) * 1000)
        times["release"].append((time.perf_counter() - ended) * 1000)
    await provider.aclose()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--rounds", type=int, default=60)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        times = asyncio.run(measure(Path(place), chosen.rounds))
    p50 = {key: round(statistics.median(values), 2) for key, values in times.items()}
    p95 = {key: round(sorted(values)[int(len(values) * 0.95)], 2) for key, values in times.items()}
    ratio = round(p50["sandbox"] / p50["private"], 2)
    result = {
        "p50_ms": p50,
        "p95_ms": p95,
        "ratio": ratio,
        "ratio_to_bare": round(p50["sandbox"] / p50["bare"], 2),
        "bound": BOUND,
        "ok": ratio <= BOUND,
        "rounds": chosen.rounds,
        "load": os.getloadavg()[0],
        "root": os.geteuid() == 0,
    }
    if chosen.json:
        print(json.dumps(result))
    else:
        for key in times:
            print(f"{key:<8} p50 {p50[key]:8.2f} ms   p95 {p95[key]:8.2f} ms")
        print(
            f"start + first command: {ratio} x bubblewrap with a private root (bound {BOUND}), "
            f"{result['ratio_to_bare']} x bare bubblewrap; load {result['load']:.1f}"
        )
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
