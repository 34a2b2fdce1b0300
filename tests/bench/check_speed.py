"""How long a check takes, and how soon it says its first line.

    uv run python -m tests.bench.check_speed [CONFIG …] [--runs N] [--json]

Each config is checked in a project directory of its own, once to warm up and then N times, each in a process of its own.
Of every figure the least is told, for another program can only add to it: seconds on the clock, seconds of the
processor (its children's too), and seconds on the clock until the first line. On a machine that is busy only those of
the processor say anything. The exit status is 1 where the processor alone takes longer than a check may.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

EXAMPLES = ("examples/tool_agent/train_local.toml", "examples/in_process_direct/train.toml")
RUNS = 5
MOST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds: on the clock, of the processor, on the clock until the first line of standard output."""

    wall: float
    processor: float
    first_line: float


def measure(config: str, directory: Path) -> Speed:
    """One check in a process of its own, as the command line makes it."""
    began = time.monotonic()
    command = [sys.executable, "-m", "loops_tui", "check", config]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline()
    first_line = time.monotonic() - began
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not line:
        raise SystemExit(f"the check of {config} failed with status {process.returncode}")
    return Speed(wall, used.ru_utime + used.ru_stime, first_line)


def least(speeds: list[Speed]) -> Speed:
    return Speed(
        min(each.wall for each in speeds),
        min(each.processor for each in speeds),
        min(each.first_line for each in speeds),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", nargs="*", default=EXAMPLES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found: dict[str, Speed] = {}
    for config in chosen.configs:
        with tempfile.TemporaryDirectory() as scratch:
            measure(config, Path(scratch))
            found[config] = least([measure(config, Path(scratch)) for _ in range(chosen.runs)])
        if not chosen.json:
            speed = found[config]
            print(
                f"{config}: {speed.wall:.2f} s, {speed.processor:.2f} s of the processor, first line after "
                f"{speed.first_line:.2f} s",
                flush=True,
            )
    if chosen.json:
        print(json.dumps({config: asdict(speed) for config, speed in found.items()}))
    if any(speed.processor > MOST_SECONDS for speed in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
