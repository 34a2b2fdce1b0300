"""Bytes that the application sends to its terminal, and the processor time it takes: a live run, and idle screens.

    uv run python -m tests.bench.terminal_bytes [--example tool_agent] [--seconds 30] [--size 120x40] [--skip-live]

The app runs on a pseudo-terminal. The live run is a real one, trained by a process of its own in a project of its own.
``--json`` prints one JSON value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.store.rows import RunState
from engine.store.store import Store
from tests.terminal.session import ROOT, Session
from tools.sample_store import fill

#: Example, config, and what makes the run last as long as one looks at it.
EXAMPLES = {
    "tool_agent": ("train_local.toml", ()),
    "in_process_direct": (
        "train.toml",
        ("training.max_steps=2000", "training.learning_rate=1e-6", "training.max_consecutive_unusable_groups=1000"),
    ),
}  # fmt: skip
LIVE_LIMIT = 15 * 1024.0  # bytes a second
WAIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What one screen cost. Bytes are those written to the terminal; ``cpu`` is a share of one core."""

    screen: str
    seconds: float
    bytes_per_second: float
    peak_second: int
    cpu: float
    opening_bytes: int


def processor_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(session: Session, screen: str, seconds: float, opening_bytes: int) -> Measured:
    """Count what comes for so long."""
    begun, used = time.monotonic(), processor_seconds(session.process.pid)
    in_second: dict[int, int] = {}
    while (passed := time.monotonic() - begun) < seconds:
        data = session.read(min(0.25, seconds - passed))
        place = int(time.monotonic() - begun)
        in_second[place] = in_second.get(place, 0) + len(data)
    passed = time.monotonic() - begun
    cpu = (processor_seconds(session.process.pid) - used) / passed
    total, peak = sum(in_second.values()), max(in_second.values(), default=0)
    return Measured(screen, round(passed, 1), round(total / passed, 1), peak, round(cpu, 4), opening_bytes)


def open_run(session: Session, listed: str, shown: str) -> int:
    """From the list to its first run; the bytes that took, within two seconds."""
    session.until(listed)
    session.read(1.0)
    before = len(session.out)
    session.press(b"\r")
    session.until(shown, since=before)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        session.read(0.2)
    return len(session.out) - before


def idle(size: tuple[int, int], seconds: float) -> Iterator[Measured]:
    """The list of runs and the screen of one that has ended."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "agents"
        project.mkdir()
        sample = fill(project)
        with Store.open(project) as store:
            store.end_run(sample.live, sample.host.host_id, RunState.DONE, None)
        with Session(project, "idle", size) as session:
            session.until("7 runs")
            session.until_quiet(2.0)
            yield watch(session, "runs, idle", seconds, len(session.out))
            opened = open_run(session, "7 runs", "trained")
            session.until_quiet(2.0)
            yield watch(session, "run, idle", seconds, opened)


@contextlib.contextmanager
def training(project: Path, example: str) -> Iterator[None]:
    """A real run in a process of its own, aborted at the end."""
    config, overrides = EXAMPLES[example]
    shutil.copytree(ROOT / "examples" / example, project / example)
    words = [word for override in overrides for word in ("--set", override)]
    command = [sys.executable, "-m", "loops_tui", "run", f"{example}/{config}", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (project / "run.out").open("wb") as out:
        process = subprocess.Popen(command, cwd=project, env=environ, stdout=out, stderr=out)
    try:
        yield
    finally:
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def live(example: str, size: tuple[int, int], seconds: float) -> Measured:
    """The screen of a run that trains, from its second step on."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "agents"
        project.mkdir()
        with training(project, example):
            _until_step(project, 1)
            with Session(project, "idle", size) as session:
                opened = open_run(session, example, "Attempts of group")
                return watch(session, f"run, live ({example})", seconds, opened)


def _until_step(project: Path, step: int) -> None:
    """Wait until the project's one run has trained so many steps."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if Store.exists(project):
            with Store.open(project) as store:
                runs = store.reader().runs()
                if runs and runs[0].step >= step:
                    return
                if runs and runs[0].state.final:
                    raise SystemExit(f"the run ended: {runs[0].error}")
        time.sleep(0.5)
    raise SystemExit(f"no step was trained: {(project / 'run.out').read_text()[-500:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--example", choices=sorted(EXAMPLES), default="tool_agent")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--skip-live", action="store_true")
    parser.add_argument("--skip-idle", action="store_true")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    columns, lines = (int(part) for part in chosen.size.split("x"))
    found = [] if chosen.skip_idle else list(idle((columns, lines), min(chosen.seconds, 10.0)))
    if not chosen.skip_live:
        found.append(live(chosen.example, (columns, lines), chosen.seconds))
    if chosen.json:
        print(json.dumps([asdict(row) for row in found]))
    for row in [] if chosen.json else found:
        print(
            f"{row.screen:<28} {row.bytes_per_second / 1024:6.2f} KiB/s, peak second {row.peak_second / 1024:.1f} KiB, "
            f"processor {row.cpu:.2%}, opening {row.opening_bytes / 1024:.1f} KiB  ({row.seconds:.0f} s)"
        )
    raise SystemExit(any(row.bytes_per_second > (LIVE_LIMIT if "live" in row.screen else 0) for row in found))


if __name__ == "__main__":
    main()
