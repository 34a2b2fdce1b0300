"""From the start of the process to the first full frame: ``loops-tui`` against an empty Textual app, in one run.

``python -m tests.bench.first_paint [--rounds 11] [--json]``

Both are started in turns on a terminal of 120x40, so a busy machine disturbs them alike; the medians are compared.
``cpu_ratio`` compares the processor time used until then, and is the steadier of the two. The project holds the
sample runs, as somebody who comes back to their work has.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from tests.bench.on_a_pty import WAIT_SECONDS, OnAPty
from tools.sample_store import fill

ALT_SCREEN = b"\x1b[?1049h"
FRAME_BYTES = 1500  # the modes that are switched on take some two hundred; a frame takes more than this
TARGET = 1.3
EMPTY = ["-c", "from textual.app import App; App().run()"]
OURS = ["-c", "from loops_tui.entry import main; main()"]


def first_paint(arguments: list[str], cwd: Path) -> tuple[float, float]:
    """(seconds, seconds of processor time) until the first frame has come."""
    with OnAPty(arguments, cwd) as program:
        while True:
            program.read(0.5)
            seconds = time.perf_counter() - program.began
            place = program.out.find(ALT_SCREEN)
            if place >= 0 and len(program.out) - place > FRAME_BYTES:
                return seconds, program.cpu_seconds()
            if seconds > WAIT_SECONDS or program.process.poll() is not None:
                raise TimeoutError(f"no frame came: {bytes(program.out[-500:])!r}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "agents"
        project.mkdir()
        fill(project)
        for arguments in (EMPTY, OURS):  # files come into the page cache
            first_paint(arguments, project)
        empty, ours = [], []
        for _ in range(chosen.rounds):
            empty.append(first_paint(EMPTY, project))
            ours.append(first_paint(OURS, project))

    def median(measured: list[tuple[float, float]], place: int) -> float:
        return statistics.median(pair[place] for pair in measured)

    result = {
        "rounds": chosen.rounds,
        "empty_seconds": median(empty, 0),
        "loops_tui_seconds": median(ours, 0),
        "ratio": median(ours, 0) / median(empty, 0),
        "cpu_ratio": median(ours, 1) / median(empty, 1) if median(empty, 1) else None,
        "target": TARGET,
    }
    if chosen.json:
        print(json.dumps(result))
        return
    print(f"empty app  {result['empty_seconds']:.3f} s")
    print(f"loops-tui  {result['loops_tui_seconds']:.3f} s")
    print(
        f"ratio      {result['ratio']:.2f} (at most {TARGET}); of processor time {result['cpu_ratio'] or 0:.2f}"
    )


if __name__ == "__main__":
    main()
