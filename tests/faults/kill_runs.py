"""Kill -9 of a whole run at random moments, and a look for what is left after ``cleanup``.

``uv run python -m tests.faults.kill_runs [--kills 200] [--seed 0] [--json]``

Each round starts ``loops-tui run`` on the tool agent, 16 sandboxes at a time, and kills it at a random moment after it
began to sample. Then nothing of it may be alive or left: no sandbox process, directory or mount, no local Loops
server; every lease says released, and the run says interrupted. The exit status is 0 if that always held.
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

from engine.store import Store
from engine.store.rows import RunState
from tests.faults.kill_sandboxes import clean
from tests.faults.result import tell

CONFIG = Path(__file__).parents[2] / "examples" / "tool_agent" / "train_local.toml"
SERVER_SECONDS = 60.0
END_SECONDS = 30.0


def start(project: Path) -> subprocess.Popen[str]:
    """A run that has begun to sample."""
    sets = ("training.groups_per_step=1", "training.group_size=16", "training.max_steps=1000")
    victim = subprocess.Popen(
        [sys.executable, "-m", "loops_tui", "run", str(CONFIG), *(f"--set={each}" for each in sets)],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert victim.stderr is not None
    said = []
    for line in victim.stderr:
        said.append(line)
        if "Renderer:" in line:
            return victim
    raise SystemExit("the run ended before it sampled:\n" + "".join(said))


def servers(project: Path) -> list[str]:
    """Local Loops servers of a project that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"engine.local_loops" in words and any(
                word.startswith(os.fsencode(project)) for word in words
            ):
                found.append(entry.name)
    return found


def server_left(project: Path) -> list[str]:
    """Servers that have not ended within the time they are given."""
    deadline = time.monotonic() + SERVER_SECONDS
    while (alive := servers(project)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"the local Loops server {pid} is alive" for pid in alive]


def untrue_states(project: Path) -> list[str]:
    """Runs that do not say interrupted although their host was killed."""
    with Store.open(project) as store:
        store.reconcile()
        rows = store.reader().runs()
        return [f"run {row.run_id}: {row.state}" for row in rows if row.state is not RunState.INTERRUPTED]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--longest", type=float, default=6.0, help="seconds of sampling before the kill, at most"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    chosen = parser.parse_args()
    moments = random.Random(chosen.seed)
    found, wrong, started = 0, list[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        project = Path(place)
        for number in range(chosen.kills):
            victim = start(project)
            time.sleep(moments.uniform(0, chosen.longest))
            victim.kill()
            victim.wait(END_SECONDS)
            assert victim.stderr is not None
            victim.stderr.close()
            released, left = asyncio.run(clean(project))
            found += released
            left += untrue_states(project) + server_left(project)
            wrong += [f"kill {number}: {text}" for text in left]
    result = {
        "kills": chosen.kills,
        "released_by_cleanup": found,
        "left": wrong,
        "seconds": round(time.monotonic() - started, 1),
        "ok": not wrong,
    }
    return tell(result, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
