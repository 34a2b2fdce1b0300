"""Kill -9 of a process with sandboxes at random moments, and a look for what is left after ``cleanup``.

``uv run python -m tests.faults.kill_sandboxes [--kills 200] [--sandboxes 16] [--seed 0] [--isolation auto] [--json]``

Each round starts a process that creates, uses and releases sandboxes without end, kills it after a random time, runs
``cleanup`` and looks for processes, mounts and directories with means of its own. The exit status is 0 if nothing was
ever left and every lease says released.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.sandboxes import SandboxSettings
from engine.sandboxes.cleanup import cleanup
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.local import LocalProvider
from engine.sandboxes.naming import project_label
from engine.store import Store
from engine.store.rows import LeaseState
from tests.faults.result import tell
from tests.sandboxes.traces import traces
from tests.sandboxes.victim import become_host

END_SECONDS = 30.0
_JOBS = "setsid sleep 1001 & (trap '' TERM; setsid sleep 1002) & head -c 300000 /dev/zero; sleep 0.0$N"


async def live(project: Path, sandboxes: int, isolation: str) -> None:
    """The victim: as many sandboxes at once as asked for, one after the other, for ever."""
    host = f"host-{os.getpid()}"
    settings = SandboxSettings(isolation=isolation)
    with Store.open(project) as store:
        become_host(store, host)
        provider = LocalProvider(project, settings)
        label = project_label(project)
        keeper = LeaseKeeper(store, provider, settings, project=label, run_id="run-1", host_id=host)

        async def attempts(number: int) -> None:
            while True:
                leased = await keeper.acquire(group_id=0, attempt=number)
                await leased.sandbox.write_tree({f"deep/file{n}": b"x" * 1000 for n in range(5)})
                await leased.sandbox.exec(_JOBS, env={"N": str(number)}, timeout=60)
                await leased.sandbox.read("deep/file1")
                await keeper.release(leased)

        print("ready", flush=True)
        await asyncio.gather(*(attempts(number) for number in range(sandboxes)))


async def clean(project: Path) -> tuple[int, list[str]]:
    """Cleanup; how much it found, and everything that is wrong afterwards."""
    with Store.open(project) as store:
        report = await cleanup(store, project)
        wrong = [f"failed: {entry}" for entry in report.failed]
        wrong += [f"taken for live: {entry}" for entry in report.skipped_live]
        rows = store.reader().leases()
        wrong += [f"lease {row.name}: {row.state}" for row in rows if row.state is not LeaseState.RELEASED]
    return len(report.released) + len(report.already_gone), wrong + traces(project)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sandboxes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=1.5, help="seconds that a process may live at most")
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--live", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.live is not None:
        asyncio.run(live(chosen.live, chosen.sandboxes, chosen.isolation))
        return 1
    moments = random.Random(chosen.seed)
    found = 0
    wrong: list[str] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        project = Path(place)
        words = [sys.executable, "-m", "tests.faults.kill_sandboxes", "--live", place]
        words += ["--sandboxes", str(chosen.sandboxes), "--isolation", chosen.isolation]
        for number in range(chosen.kills):
            victim = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert victim.stdout is not None
            victim.stdout.readline()
            time.sleep(moments.uniform(0, chosen.longest))
            victim.kill()
            victim.wait(END_SECONDS)
            victim.stdout.close()
            released, left = asyncio.run(clean(project))
            found += released
            wrong += [f"kill {number}: {text}" for text in left]
    result = {
        "kills": chosen.kills,
        "sandboxes": chosen.sandboxes,
        "released_by_cleanup": found,
        "left": wrong,
        "seconds": round(time.monotonic() - started, 1),
        "ok": not wrong,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
