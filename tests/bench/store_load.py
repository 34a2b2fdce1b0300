"""The store while a run writes a thousand rows a second: how late a second process sees them, and how long an intent takes.

    uv run python -m tests.bench.store_load [--seconds 20] [--rate 1000] [--json]

A process writes attempts, log lines and long transcripts through the run's recorder, with the run directory beside the
store. Another one reads as an app does, ten times a second, and tells how old each log line is when it sees it. Meanwhile
leases are written down as before a sandbox is created: each is committed to the disk before anything goes on. At the end
as many rows as possible are written at once. The exit status is 0 where rows are seen within half a second, twice as
long as the store may keep them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.store import Store
from engine.store.leases import LeaseJournal
from engine.store.recorder import RunRecorder
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    LeaseRow,
    LeaseState,
    TranscriptRow,
)
from tests.faults.result import tell
from tests.store.conftest import make_run

RUN = "20261130-000000-load"
GROUPS, ATTEMPTS = 64, 16
TRANSCRIPT_EVERY = 50
LOG_EVERY = 20
TURNS, TURN = 12, "the reply of a turn, with some words of its own: {0} " * 20
EVERY_SECONDS = 0.01
LEASE_SECONDS = 0.05
READ_SECONDS = 0.1
AT_ONCE = 20_000
MOST_LATE_MS = 500.0
_COURSE = (
    AttemptState.PROVISIONING, AttemptState.SETUP, AttemptState.SAMPLING, AttemptState.ACTING, AttemptState.GRADING,
)  # fmt: skip


def attempt_row(number: int) -> AttemptRow:
    """An event: an attempt has a new state."""
    group, attempt = divmod(number % (GROUPS * ATTEMPTS), ATTEMPTS)
    state = _COURSE[number // (GROUPS * ATTEMPTS) % len(_COURSE)]
    return AttemptRow(RUN, group, attempt, state, turns=number % TURNS, sampled_tokens=number)


def write_one(recorder: RunRecorder, number: int) -> None:
    if number % TRANSCRIPT_EVERY == 0:
        group, attempt = divmod(number // TRANSCRIPT_EVERY % (GROUPS * ATTEMPTS), ATTEMPTS)
        turns = [{"role": "assistant", "content": TURN.format(number + turn)} for turn in range(TURNS)]
        recorder.transcript(TranscriptRow(RUN, group, attempt, f"task-{group}", 1.0, "graded", turns))
    elif number % LOG_EVERY == 1:
        recorder.log("info", "bench", str(time.monotonic()))  # one clock for all processes
    else:
        recorder.attempt(attempt_row(number))


async def leases(store: Store) -> list[float]:
    """Seconds that each intent took, until cancelled."""
    journal, took = LeaseJournal(store), list[float]()
    try:
        while True:
            name = f"lease-{len(took)}"
            began = time.perf_counter()
            await journal.add(
                LeaseRow(name, "local", "bubblewrap", RUN, 0, 0, None, LeaseState.INTENDED, time.time())
            )
            took.append(time.perf_counter() - began)
            await asyncio.sleep(LEASE_SECONDS)
    except asyncio.CancelledError:
        return took


async def write(directory: Path, rate: int, seconds: float) -> dict[str, float]:
    """The run. Returns how many rows it wrote, what its loop felt of it, and the leases' times."""
    with Store.open(directory) as store:
        store.create_run(make_run(directory, RUN))
        recorder = store.recorder(RUN)
        for group in range(GROUPS):
            recorder.group(GroupRow(RUN, group, GroupState.RUNNING, f"task-{group}", group))
        await recorder.flush()
        with reader(directory) as reading:
            intents = asyncio.create_task(leases(store))
            began, written = time.monotonic(), 0
            handing = 0.0
            while (now := time.monotonic() - began) < seconds:
                due, before = int(now * rate), time.thread_time()
                for number in range(written, due):
                    write_one(recorder, number)
                handing += time.thread_time() - before
                written = due
                await asyncio.sleep(EVERY_SECONDS)
            intents.cancel()
            took = await intents
            await recorder.flush()
            late = lateness(reading)
        at_once = await as_many_as_possible(recorder)
        recorder.close()
    return {
        "rows": written,
        "rows_per_second": written / seconds,
        "hand_over_us": 1e6 * handing / written,
        "lease_p50_ms": 1000 * statistics.median(took),
        "lease_p99_ms": 1000 * statistics.quantiles(took, n=100)[98],
        "most_rows_per_second": at_once,
        **late,
    }


async def as_many_as_possible(recorder: RunRecorder) -> float:
    """Rows a second, from the first one handed over to all being committed; log lines, for no two of them meet."""
    began = time.perf_counter()
    for number in range(AT_ONCE):
        recorder.log("debug", "bench", f"line {number}")
    await recorder.flush(120)
    return AT_ONCE / (time.perf_counter() - began)


def reader(directory: Path) -> subprocess.Popen[str]:
    """Another process that looks into the store as an app does, until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.store_load", "--read", str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def lateness(reading: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = reading.communicate(timeout=60)
    found: dict[str, float] = json.loads(out)
    return found


def read(directory: Path) -> dict[str, float]:
    """Milliseconds between handing a log line over and seeing it here, and those that a look took."""
    late: list[float] = []
    looks: list[float] = []
    with Store.open(directory) as store:
        rows, last = store.reader(), 0
        print("ready", flush=True)
        ended = False
        while not ended:
            ended = _input_ended(READ_SECONDS)
            began = time.perf_counter()
            lines = rows.log(RUN, last)
            now = time.monotonic()
            rows.groups(RUN, GROUPS)
            rows.attempts(RUN, 0)
            looks.append(time.perf_counter() - began)
            late += [now - float(line.text) for line in lines]
            last = lines[-1].log_id if lines else last
    cuts = statistics.quantiles(late, n=100)
    return {
        "seen": len(late),
        "late_p50_ms": 1000 * cuts[49],
        "late_p99_ms": 1000 * cuts[98],
        "look_p99_ms": 1000 * statistics.quantiles(looks, n=100)[98],
    }


def _input_ended(seconds: float) -> bool:
    """Wait so long, or until whoever started this closes its end."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=1000, help="rows a second")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.read is not None:
        print(json.dumps(read(chosen.read)))
        return 0
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(write(Path(place), chosen.rate, chosen.seconds))
    result = {name: round(value, 2) for name, value in found.items()}
    return tell(result | {"ok": found["late_p99_ms"] <= MOST_LATE_MS}, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
