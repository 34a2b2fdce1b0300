"""All benchmarks, one after another: every figure with its bound.

    uv run python -m tests.bench [--quick] [--only NAME …] [--json] [--write docs/benchmarks.md]

Prints a Markdown table. Each benchmark runs in a process of its own and is also there alone, with arguments of its own:
``python -m tests.bench.<name> --json``, or ``tests.faults.<name>`` for those that kill. Progress goes to standard error.
One that fails or takes too long is told, and the others go on. ``--quick`` only shows that all of them work: its figures
mean little. The exit status is 1 where a bound does not hold or a benchmark failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.bench.registry import BENCHES, SEPARATE, Bench

ROOT = Path(__file__).parents[2]
#: A benchmark may take so many times what it takes on a quiet machine.
PATIENCE = 4.0
LEAST_SECONDS = 120.0
#: Above this share of the cores, just before a benchmark begins, its figures are noted as a busy machine's.
BUSY_SHARE = 0.15
#: How long the machine is looked at before a benchmark: the load average still knows the one before it.
LOOK_SECONDS = 2.0
TAIL = 300  # characters of what a failed one said


@dataclass(frozen=True, slots=True)
class Ran:
    """``found`` is the benchmark's JSON; None where it failed, and ``problem`` says how. ``load``: see :func:`in_use`."""

    bench: Bench
    found: Any
    seconds: float
    load: float
    problem: str = ""

    @property
    def busy(self) -> bool:
        return self.load > BUSY_SHARE * cores()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each figure."""
        rows: list[dict[str, Any]] = []
        for figure in self.bench.figures:
            row: dict[str, Any] = {"figure": figure.what, "unit": figure.unit, "bound": figure.bound}
            row["at_least"] = figure.at_least
            try:
                value = None if self.found is None else figure.read(self.found)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                value, row["problem"] = None, f"its JSON has no such figure: {error!r}"
            row["measured"] = value
            row["holds"] = None if value is None else figure.holds(value)
            rows.append(row)
        return rows

    @property
    def ok(self) -> bool:
        return self.found is not None and all(
            row["measured"] is not None and row["holds"] is not False for row in self.rows()
        )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_use(seconds: float) -> float:
    """How many cores are in use for so many seconds; the load of the last minute where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return os.getloadavg()[0]

    def busy() -> float:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / seconds


def run(bench: Bench, quick: bool) -> Ran:
    """One benchmark in a process group of its own, which is ended with it."""
    command = [sys.executable, "-m", bench.module, *bench.arguments(quick), "--json"]
    load, began = in_use(LOOK_SECONDS), time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    limit = max(bench.seconds * PATIENCE, LEAST_SECONDS)
    try:
        out, err = process.communicate(timeout=limit)
        problem = ""
    except subprocess.TimeoutExpired:
        out, err, problem = "", "", f"it took longer than {limit:.0f} s"
    finally:
        _end(process)
    seconds = round(time.monotonic() - began, 1)
    # The exit status is not looked at: a bound that does not hold is told by the figures.
    try:
        found = json.loads(out)
    except ValueError:
        said = " ".join((err or out).split())[-TAIL:]
        problem = problem or f"status {process.returncode}, no JSON: {said}"
        return Ran(bench, None, seconds, load, problem)
    return Ran(bench, found, seconds, load, problem)


def _end(process: subprocess.Popen[str]) -> None:
    """End whatever a benchmark has left in its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        process.wait(10)


def table(ran: list[Ran], all_of: Sequence[Bench] = ()) -> str:
    """The figures as Markdown; those of ``all_of`` that were not run are named too."""
    lines = ["| benchmark | figure | bound | measured | |", "|---|---|---|---|---|"]
    for one in ran:
        if one.found is None:
            lines.append(f"| `{one.bench.name}` | | | failed: {_cell(one.problem)} | **no** |")
            continue
        for row in one.rows():
            verdict = {True: "yes", False: "**no**", None: ""}[row["holds"]]
            name = f"`{one.bench.name}`{' ¹' if one.busy else ''}"
            lines.append(
                f"| {name} | {row['figure']} | {_bound(row)} | {_number(row['measured'], row['unit'])} | {verdict} |"
            )
    done = {one.bench.name for one in ran}
    lines += [f"| `{bench.name}` | | | not run | |" for bench in all_of if bench.name not in done]
    if any(one.busy for one in ran):
        lines += ["", "¹ Measured while the machine was busy with other things: see the load below."]
    return "\n".join(lines)


def _bound(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return ""
    return f"{'≥' if row['at_least'] else '≤'} {_number(row['bound'], row['unit'])}"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "none"
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page(ran: list[Ran], quick: bool) -> str:
    """docs/benchmarks.md."""
    arguments = " --quick" if quick else ""
    by_name = {one.bench.name: one for one in ran}
    alone = "\n".join(_described(bench, by_name.get(bench.name), quick) for bench in BENCHES)
    separate = "\n".join(f"| `uv run {command}` | {what} |" for command, what in SEPARATE)
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"""# Benchmarks

Made by `uv run python -m tests.bench{arguments} --write docs/benchmarks.md` on {made}:
{machine()}.
Ratios compare two things in one run, in turns, so that they hold on other machines too.

{table(ran, BENCHES)}

Each is there alone, too, as `uv run python -m tests.bench.<name>` (`tests.faults.<name>` for those that kill), with
`--json` for all its figures and `--help` for its arguments. Load is how many cores were in use just before it began.

| benchmark | measures | with | took | load |
|---|---|---|---|---|
{alone}

What takes long is run by hand:

| command | shows |
|---|---|
{separate}
"""


def _described(bench: Bench, ran: Ran | None, quick: bool) -> str:
    given = " ".join(bench.arguments(quick))
    cells = [f"`{bench.name}`", bench.what, f"`{given}`" if given else ""]
    cells += ["", ""] if ran is None else [f"{ran.seconds:.0f} s", f"{ran.load:.1f}"]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What this is, in a few words."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else ""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return ", ".join(filter(None, (f"{cores()} cores", model, system)))


def main() -> int:
    names = [bench.name for bench in BENCHES]
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="few rounds; to see that everything works")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--without", nargs="+", choices=names, metavar="NAME", default=[])
    parser.add_argument("--json", action="store_true", help="one JSON value instead of the table")
    parser.add_argument("--write", type=Path, help="write the page of the documents here")
    chosen = parser.parse_args()
    wanted = [
        bench
        for bench in BENCHES
        if bench.name not in chosen.without and (not chosen.only or bench.name in chosen.only)
    ]
    ran: list[Ran] = []
    for number, bench in enumerate(wanted, 1):
        print(f"{number}/{len(wanted)} {bench.name}: {bench.what}", file=sys.stderr, flush=True)
        ran.append(run(bench, chosen.quick))
        last = ran[-1]
        verdict = (
            "failed: " + last.problem if last.found is None else "ok" if last.ok else "NOT within bounds"
        )
        print(f"    {verdict} after {last.seconds:.0f} s", file=sys.stderr, flush=True)
    if chosen.write is not None:
        chosen.write.write_text(page(ran, chosen.quick), encoding="utf-8")
    if chosen.json:
        told = [
            {
                "name": one.bench.name,
                "ok": one.ok,
                "busy": one.busy,
                "load": round(one.load, 2),
                "seconds": one.seconds,
                "problem": one.problem or None,
                "figures": one.rows(),
                "found": one.found,
            }
            for one in ran
        ]
        print(json.dumps({"machine": machine(), "quick": chosen.quick, "benches": told}))
    else:
        print(table(ran))
    return 0 if all(one.ok for one in ran) else 1


if __name__ == "__main__":
    sys.exit(main())
