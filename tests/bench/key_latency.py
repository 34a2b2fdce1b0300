"""From a key to the bytes that show what it did, while a run in the app trains and writes 1,000 events a second.

``python -m tests.bench.key_latency [--keys 80] [--json]``

The real app on a terminal of 120x40, the run in its engine's thread, the Loops server beside it as always. Two keys
are measured, at random moments: holding the run's view still (the top line says so) and moving the cursor of the runs (a row left, a row entered, another run's details). ``own`` leaves out the time in which other
processes had the processors. Then the app is left idle, with no run: processor time and bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from engine.config.bundled import examples_dir
from engine.store.rows import RunState
from engine.store.store import Store
from tests.bench.on_a_pty import OnAPty
from tools.sample_store import fill

TARGET_SECONDS = 0.050
IDLE_SECONDS = 10.0
KEY_SECONDS = 10.0  # a bound, not a measure
HELD = "held still"


def pause_between(program: OnAPty, chance: random.Random) -> None:
    until = time.perf_counter() + chance.uniform(0.08, 0.25)
    while (left := until - time.perf_counter()) > 0:
        program.read(left)


def latency(program: OnAPty, key: bytes, shows: str, unless: str | None = None) -> tuple[float, float]:
    """Seconds from writing a key until the bytes that show what it did have come; and without those in which the
    painting thread stood in the queue for a processor. Raises TimeoutError, at once where ``unless`` is shown."""
    queued = program.queued_seconds()
    began = time.perf_counter()
    program.press(key)
    while True:
        program.read(1.0)
        seconds = time.perf_counter() - began  # before the picture is drawn: that is our work, not the app's
        waited = program.queued_seconds() - queued
        if program.shows(shows):
            return seconds, max(0.0, seconds - waited)
        if seconds > KEY_SECONDS or (unless is not None and program.shows(unless)):
            raise TimeoutError(
                f"{shows!r} never came after {key!r}; on the screen is\n{program.picture.text}"
            )


def holding(program: OnAPty, keys: int, chance: random.Random) -> list[tuple[float, float]]:
    found = []
    for _ in range(keys):
        pause_between(program, chance)
        found.append(latency(program, b" ", HELD))
        pause_between(program, chance)
        program.press(b" ")
        while program.shows(HELD):
            program.read(0.2)
    return found


def moving(
    program: OnAPty, names: Sequence[str], keys: int, chance: random.Random
) -> list[tuple[float, float]]:
    """Down and up the list of runs; each one's id stands in the details alone."""
    found, place, by = [], 0, 1
    for _ in range(keys):
        if not 0 <= place + by < len(names):
            by = -by
        place += by
        pause_between(program, chance)
        found.append(latency(program, b"\x1b[B" if by > 0 else b"\x1b[A", names[place]))
    return found


def p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


def told(name: str, measured: Sequence[tuple[float, float]]) -> dict[str, float]:
    """A key's figures in milliseconds."""
    seen, own = [pair[0] * 1000 for pair in measured], [pair[1] * 1000 for pair in measured]
    return {
        f"{name}_median_ms": statistics.median(seen),
        f"{name}_p95_ms": p95(seen),
        f"{name}_own_median_ms": statistics.median(own),
        f"{name}_own_p95_ms": p95(own),
    }


def idle(project: Path) -> tuple[float, int]:
    """(share of a processor, bytes sent) of an app on finished runs that nobody touches."""
    with OnAPty(["-m", "loops_tui"], project) as program:
        program.until("tool_agent")
        while program.read(2.0):
            pass
        cpu, sent, began = program.cpu_seconds(), len(program.out), time.perf_counter()
        while time.perf_counter() - began < IDLE_SECONDS:
            program.read(1.0)
        return (program.cpu_seconds() - cpu) / (time.perf_counter() - began), len(program.out) - sent


def measure(keys: int) -> dict[str, float | int]:
    chance = random.Random(1)
    examples = examples_dir()
    assert examples is not None
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "agents"
        project.mkdir()
        sample = fill(project)
        with Store.open(project) as store:
            store.end_run(sample.live, sample.host.host_id, RunState.DONE, None)
            past = [run.run_id for run in store.reader().runs()]
        shutil.copytree(examples / "in_process_direct", project / "direct")
        with Store.open(project) as store:
            reader = store.reader()
            with OnAPty(
                ["-m", "tests.bench.busy_app", str(project), "direct/train.toml"], project
            ) as program:
                program.until("event ")  # its log is in view
                live = next(run.run_id for run in reader.runs() if not run.state.final)
                began_at, began = reader.last_log(live, 1)[0].log_id, time.perf_counter()
                while reader.run(live).step < 1:  # it trains by now
                    program.read(0.2)
                held = holding(program, keys, chance)
                program.press(b"1")
                program.until("Details")
                pause_between(program, chance)
                moved = moving(program, [live, *past], keys, chance)
                seconds = time.perf_counter() - began
                events = (reader.last_log(live, 1)[0].log_id - began_at) * 20 / seconds
                steps = reader.run(live).step
        idle_cpu, idle_bytes = idle_app(scratch)
    return {
        "keys": keys,
        **told("hold", held),
        **told("move", moved),
        "target_p95_ms": TARGET_SECONDS * 1000,
        "events_per_second": events,
        "steps_trained": steps,
        "idle_cpu": idle_cpu,
        "idle_bytes": idle_bytes,
    }


def idle_app(scratch: str) -> tuple[float, int]:
    project = Path(scratch) / "idle"
    project.mkdir()
    sample = fill(project)
    with Store.open(project) as store:
        store.end_run(sample.live, sample.host.host_id, RunState.DONE, None)
    return idle(project)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=80)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    result = measure(chosen.keys)
    if chosen.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:20} {value:.3f}" if isinstance(value, float) else f"{name:20} {value}")


if __name__ == "__main__":
    main()
