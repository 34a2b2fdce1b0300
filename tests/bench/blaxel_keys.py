"""From a key to the bytes that show what it did, while a run in the app starts 32 Blaxel sandboxes at once.

``python -m tests.bench.blaxel_keys [--sandboxes 32] [--rounds 6] [--json]``

The real app on a terminal of 120x40. A run of examples/tool_agent with the local model begins in its engine's thread, its
sandboxes on the emulator (a process of its own). Keys are pressed all the while: from the first picture until the run
begins, which is when the engine and Blaxel's SDK are imported, they move the cursor of the runs (``loading``); from then
until all sandboxes have been active they hold the view and let it go (``starting``). ``own`` leaves out the time in which
other processes had the processors. A round has some 15 keys while sandboxes start; the figures are of the keys of all
rounds. The exit status is 0 if every p95 is within the bound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from engine.store.rows import LeaseState, RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import make_hosting, open_store
from loops_tui.session import run_app
from tests.bench.key_latency import HELD, TARGET_SECONDS, latency, told
from tests.bench.on_a_pty import OnAPty
from tests.blaxel_emulator.serving import EmulatorProcess
from tests.faults.blaxel_training import CONFIG, LOCAL, Size
from tools.sample_store import fill

STARTED = frozenset({LeaseState.ACTIVE, LeaseState.RELEASING, LeaseState.RELEASED})
RUN_SCREEN = "Groups"
WAIT_SECONDS = 300.0  # a bound, not a measure
type Measured = list[tuple[float, float]]


def shortly(program: OnAPty, chance: random.Random) -> None:
    """Between two keys: long enough for what the first one began, short enough for many of them."""
    until = time.perf_counter() + chance.uniform(0.03, 0.12)
    while (left := until - time.perf_counter()) > 0:
        program.read(left)


def loading(program: OnAPty, names: Sequence[str], chance: random.Random) -> Measured:
    """Down and up the first two of the runs, until a run has begun and its screen is in view."""
    found: Measured = []
    deadline = time.monotonic() + WAIT_SECONDS
    while not program.shows(RUN_SCREEN):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no run began; on the screen is\n{program.picture.text}")
        place = (len(found) + 1) % 2
        key = b"\x1b[B" if place else b"\x1b[A"
        try:
            found.append(latency(program, key, names[place], unless=RUN_SCREEN))
        except TimeoutError:
            if not program.shows(RUN_SCREEN):  # it has come before the key
                raise
        shortly(program, chance)
    return found


def starting(program: OnAPty, store: Store, run_id: str, number: int, chance: random.Random) -> Measured:
    """Hold the run's view, and let it go, until so many of its sandboxes have started."""
    found: Measured = []
    deadline = time.monotonic() + WAIT_SECONDS
    reader = store.reader()
    while sum(lease.state in STARTED for lease in reader.leases(run_id)) < number:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{number} sandboxes never started; on the screen is\n{program.picture.text}")
        shortly(program, chance)
        found.append(latency(program, b" ", HELD))
        shortly(program, chance)
        program.press(b" ")
        while program.shows(HELD):
            program.read(0.2)
    return found


type Latencies = list[tuple[float, float]]


def measure(sandboxes: int, rounds: int) -> dict[str, float | int]:
    loaded: Latencies = []
    started: Latencies = []
    for number in range(rounds):
        some, others = one_round(sandboxes, random.Random(number))
        loaded += some
        started += others
    return {
        "sandboxes": sandboxes,
        "rounds": rounds,
        "loading_keys": len(loaded),
        **told("loading", loaded),
        "starting_keys": len(started),
        **told("starting", started),
        "target_p95_ms": TARGET_SECONDS * 1000,
    }


def one_round(sandboxes: int, chance: random.Random) -> tuple[Latencies, Latencies]:
    """Latencies while the engine is loaded, and while the sandboxes start."""
    with tempfile.TemporaryDirectory() as scratch, EmulatorProcess(Path(scratch) / "emulator.log") as service:
        os.environ.update(service.environment())
        project = Path(scratch) / "agents"
        project.mkdir()
        sample = fill(project)
        with Store.open(project) as store:
            store.end_run(sample.live, sample.host.host_id, RunState.DONE, None)
            names = [run.run_id for run in store.reader().runs()]
            with OnAPty(["-m", "tests.bench.blaxel_keys", "--app", str(project)], project) as program:
                program.until(names[0])
                loaded = loading(program, names, chance)
                program.until("Hold view")
                live = next(run.run_id for run in store.reader().runs() if run.run_id not in names)
                return loaded, starting(program, store, live, sandboxes, chance)


def app(project_dir: Path, sandboxes: int) -> int:
    """The app, in its own process: it begins the run as soon as it is painted."""
    size = Size(steps=100, groups=max(1, sandboxes // 8), group_size=8)
    pace = ("providers.blaxel.max_live=1000", "providers.blaxel.creates_per_second=1000")
    return run_app(
        LoopsApp(
            project_dir,
            lambda: open_store(project_dir),
            lambda: make_hosting(project_dir),
            start=CONFIG,
            overrides=[*LOCAL, *size.sets(), *pace],
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sandboxes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--app", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.app is not None:
        return app(chosen.app, chosen.sandboxes)
    result = measure(chosen.sandboxes, chosen.rounds)
    if chosen.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value:.1f}" if isinstance(value, float) else f"{name:24} {value}")
    worst = max(result["loading_p95_ms"], result["starting_p95_ms"])
    return 0 if worst <= TARGET_SECONDS * 1000 else 1


if __name__ == "__main__":
    sys.exit(main())
