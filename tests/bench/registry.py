"""All benchmarks by name: how each is run, how long it may take, and which of its figures has which bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a benchmark's JSON. ``bound`` is the most it may be, or the least where ``at_least``; None: told only."""

    what: str
    read: Callable[[Any], float]
    unit: str = ""
    bound: float | None = None
    at_least: bool = False

    def holds(self, value: float) -> bool | None:
        if self.bound is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Bench:
    """``seconds``: what it takes on two quiet cores, about; it is ended after four times as long."""

    name: str
    what: str
    seconds: float
    figures: tuple[Figure, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] | None = None  # None: as ``full``
    package: str = "tests.bench"

    @property
    def module(self) -> str:
        return f"{self.package}.{self.name}"

    def arguments(self, quick: bool) -> tuple[str, ...]:
        return self.quick if quick and self.quick is not None else self.full


def key(*path: str | int) -> Callable[[Any], float]:
    """Reads the number at a place in a benchmark's JSON."""

    def read(found: Any) -> float:
        for part in path:
            found = found[part]
        return float(found)

    return read


def _worst(name: str, faulty: bool | None = None) -> Callable[[Any], float]:
    """The largest of a column of the schedule's cells."""
    return lambda found: max(row[name] for row in found["rows"] if faulty in (None, row["faulty"]))


def _over(found: Any) -> float:
    return max(row["staleness"] - row["k"] for row in found["rows"])


def _bytes(word: str) -> Callable[[Any], float]:
    return lambda found: max(row["bytes_per_second"] / 1024 for row in found if word in row["screen"])


def _off(found: Any) -> float:
    return max(abs(amount["off"]) for one in found for amount in one["amounts"].values())


def _number_of(name: str) -> Callable[[Any], float]:
    """How long a list is."""
    return lambda found: len(found[name])


def _unlikely(found: Any) -> float:
    return sum(one["likely"] is not None and not one["likely"]["holds"] for one in found)


BENCHES: tuple[Bench, ...] = (
    Bench(
        "schedule",
        "the engine's schedule on simulated latencies at 1/20 of their time, against a work-conserving reference",
        140,
        (
            Figure("worst cell / FIFO reference", _worst("ratio", False), "x", 1.05),
            Figure("worst cell, 25 % dead groups and 2 % faults", _worst("ratio", True), "x", 1.10),
            Figure("worst cell on a clock without slip", _worst("ratio_alone"), "x", 1.05),
            Figure("staleness above its bound", _over, "updates", 0),
            Figure("attempts discarded without a fault", _worst("discarded"), "", 0),
        ),
        full=("--at-once", "10"),
        quick=("--slots", "32", "--updates", "2", "--k", "0,2", "--steps", "10"),
    ),
    Bench(
        "engine_cost",
        "a model call in the engine against a bare SDK loop that makes the same calls, 32 conversations at once",
        60,
        (
            Figure("engine / bare SDK loop, on the clock", key("ratio"), "x", 1.3),
            Figure("engine / bare SDK loop, of the processor", key("ratio_cpu"), "x", 1.3),
            Figure("… to a loop that renders and parses", key("ratio_cpu_to_rendering"), "x"),
            Figure("… to one over as many SDK clients as the engine's", key("ratio_cpu_to_bare_spread"), "x"),
            Figure("… to that one with rendering", key("ratio_cpu_to_rendering_spread"), "x"),
            Figure("engine, of the processor", key("ms_per_call", "engine", "cpu"), "ms"),
        ),
        quick=("--rounds", "2"),
    ),
    Bench(
        "loop_lag",
        "how late the engine's event loop is with 256 attempts at once",
        25,
        (
            Figure("p99", key("p99_ms"), "ms", 50),
            Figure("p99 of what the loop itself computed", key("own_p99_ms"), "ms"),
            Figure("most", key("max_ms"), "ms"),
            Figure("share of a core in use", key("busy")),
        ),
        quick=("--attempts", "64", "--turns", "4"),
    ),
    Bench(
        "scale",
        "a whole run with 1,024 attempts of 12 turns at once, on simulated latencies",
        120,
        (
            Figure("resident memory at its highest", key("peak_mb"), "MB", 1500),
            Figure("growth over 20 steps", key("growth_mb"), "MB", 50),
            Figure("open files", key("open_files")),
            Figure("threads", key("threads")),
        ),
        quick=("--attempts", "256", "--steps", "6"),
    ),
    Bench(
        "server_throughput",
        "the local server against its own decoder called directly, 16 requests",
        40,
        (
            Figure("server / decoder", key("ratio"), "x", 0.8, at_least=True),
            Figure("server", key("server_tokens_per_s"), "tokens/s"),
        ),
        quick=("--rounds", "2"),
    ),
    Bench(
        "sampling",
        "the numpy back end alone",
        30,
        (
            Figure("16 completions at once", key("sampling", "16", "tokens_per_s"), "tokens/s"),
            Figure("training", key("training", "tokens_per_s"), "tokens/s"),
        ),
        quick=("--quick",),
    ),
    Bench(
        "first_paint",
        "from the start of the process to the first frame, against an empty Textual app",
        30,
        (
            Figure("loops-tui / empty app, on the clock", key("ratio"), "x", 1.3),
            Figure("loops-tui", key("loops_tui_seconds"), "s"),
        ),
        quick=("--rounds", "3"),
    ),
    Bench(
        "key_latency",
        "from a key to what it paints, while a run in the app trains and writes 1,000 events a second",
        60,
        (
            Figure("hold the view, p95", key("hold_p95_ms"), "ms", 50),
            Figure("move the cursor, p95", key("move_p95_ms"), "ms", 50),
        ),
        full=("--keys", "60"),
        quick=("--keys", "15"),
    ),
    Bench(
        "terminal_bytes",
        "bytes to a terminal of 120x40",
        70,
        (
            Figure("live run", _bytes("live"), "KiB/s", 15),
            Figure("idle screens", _bytes("idle"), "KiB/s", 0),
        ),
        quick=("--seconds", "8"),
    ),
    Bench(
        "history",
        "a project of 1,000 runs, 100,000 attempts and transcripts",
        200,
        (
            Figure("key 1 to rows of the Runs screen", key("key 1 to rows", "ms"), "ms", 100),
            Figure("slowest search (median)", key("slowest search"), "ms", 200),
            Figure("memory on the Runs screen", key("memory on the Runs screen, MB"), "MB", 200),
        ),
        quick=("--runs", "100"),
    ),
    Bench(
        "store_load",
        "the store and the run directory while 1,000 rows a second are written, read by another process",
        25,
        (
            Figure(
                "a row seen by another process that looks every 100 ms, p99", key("late_p99_ms"), "ms", 500
            ),
            Figure("a lease's intent on the disk, p99", key("lease_p99_ms"), "ms"),
            Figure("handing a row over, of the processor", key("hand_over_us"), "µs"),
            Figure("most rows", key("most_rows_per_second"), "rows/s"),
        ),
        quick=("--seconds", "4"),
    ),
    Bench(
        "saving",
        "a checkpoint after each step, against the SDK's own save calls in the same run",
        20,
        (
            Figure("checkpoint / SDK calls", key("whole_over_sdk"), "x", 1.10),
            Figure("training held up / SDK calls", key("held_over_sdk"), "x", 1.10),
        ),
        quick=("--steps", "5"),
    ),
    Bench(
        "check_speed",
        "a check of two bundled examples, each in a process of its own",
        25,
        (
            Figure(
                "slowest check, on the clock",
                lambda found: max(one["wall"] for one in found.values()),
                "s",
                3,
            ),
            Figure("its first line", lambda found: max(one["first_line"] for one in found.values()), "s", 1),
        ),
        quick=("--runs", "1"),
    ),
    Bench(
        "estimates",
        "the estimate of a check against what the next run does, after one earlier run",
        100,
        (
            Figure("worst amount, off by", _off, "", 0.25),
            Figure("runs outside of the attempts called likely", _unlikely, "", 0),
        ),
        full=("examples/in_process_direct/train.toml", "examples/tool_agent/train_async.toml"),
        quick=("examples/in_process_direct/train.toml", "--steps", "2"),
    ),
    Bench(
        "sandbox_start",
        "a local sandbox and its first command, against bubblewrap alone",
        5,
        (
            Figure("sandbox / bubblewrap with a private root", key("ratio"), "x", 3),
            Figure("sandbox and first command", key("p50_ms", "sandbox"), "ms"),
        ),
        quick=("--rounds", "20"),
    ),
    Bench(
        "blaxel_start",
        "32 Blaxel sandboxes at once on the emulator, against the SDK called directly",
        15,
        (
            Figure("ours / SDK", key("ratio"), "x", 1.5),
            Figure("event loop held", key("ours_median", "busy"), "ms", 50),
        ),
        quick=("--rounds", "1"),
    ),
    Bench(
        "blaxel_keys",
        "from a key to what it paints, while a run in the app starts 32 Blaxel sandboxes (the emulator)",
        60,
        (
            Figure("while the engine is loaded, p95", key("loading_p95_ms"), "ms", 50),
            Figure("while the sandboxes start, p95", key("starting_p95_ms"), "ms", 50),
        ),
        quick=("--rounds", "1"),
    ),
    Bench(
        "grading",
        "verdicts of test suites that take a second each, in fresh local sandboxes",
        22,
        (Figure("wall time / suites alone", key("ratio"), "x", 1.2),),
        quick=("--attempts", "8"),
    ),
    Bench(
        "sft_data",
        "rows prepared for supervised fine-tuning",
        30,
        (
            Figure("20,000 rows", key(1, "rows_per_second"), "rows/s"),
            Figure("memory grown by", key(1, "grown_mib"), "MiB", 10),
        ),
        quick=("--rows", "500", "2000"),
    ),
    Bench(
        "divergence",
        "the local server's sampler against its trainer, on the tokens that were sampled",
        20,
        (
            Figure("largest k3 of KL(sampler, trainer)", key("k3"), "", 1e-6),
            Figure("over", key("tokens"), "tokens"),
        ),
        quick=("--steps", "1"),
    ),
    Bench(
        "endings",
        "the terminal and the run in it after each way that an app can end",
        80,
        (
            Figure("terminals not restored", key("not_restored"), "", 0),
            Figure("runs neither drained nor going on elsewhere", key("runs_lost"), "", 0),
        ),
        quick=("--ways", "1"),
    ),
    Bench(
        "kill_sandboxes",
        "kill -9 of a process with 16 local sandboxes, then `cleanup`",
        60,
        (Figure("things left", _number_of("left"), "", 0),),
        full=("--kills", "25"),
        quick=("--kills", "1"),
        package="tests.faults",
    ),
    Bench(
        "kill_runs",
        "kill -9 of a whole run with its sandboxes, then `cleanup`",
        60,
        (Figure("things left", _number_of("left"), "", 0),),
        full=("--kills", "8"),
        quick=("--kills", "1"),
        package="tests.faults",
    ),
    Bench(
        "kill_blaxel",
        "kill -9 with 32 Blaxel creations in flight on the emulator, then `cleanup`",
        60,
        (Figure("sandboxes left", _number_of("left"), "", 0),),
        full=("--kills", "9"),
        quick=("--kills", "1"),
        package="tests.faults",
    ),
    Bench(
        "kill_resume",
        "kill -9 of a run, then resume to its end: rl, with sandboxes, async, and fine-tuning",
        150,
        (Figure("steps lost or trained twice, and whatever else is wrong", _number_of("wrong"), "", 0),),
        full=("--kills", "8", "--sandboxed", "2", "--sft", "2", "--overlapped", "2"),
        quick=("--kills", "1", "--sandboxed", "0", "--sft", "0", "--overlapped", "0"),
        package="tests.faults",
    ),
)

#: What takes long, is run alone, and is not part of the command: (command, what it shows).
SEPARATE: Sequence[tuple[str, str]] = (
    (
        "python -m tests.bench.tool_agent_learning --mode both --seed 1 --json",
        "held-out reward of the tool agent before and after training, sync and async, and how long each takes",
    ),
    (
        "python -m tests.bench.estimates",
        "the estimate against the next run, for every example that needs no account: attempts, calls, tokens, time",
    ),
    ("python -m tests.faults.kill_sandboxes", "as `kill_sandboxes` above, with 200 kills"),
    ("python -m tests.faults.kill_runs", "as `kill_runs` above, with 200 kills"),
    ("python -m tests.faults.kill_blaxel", "as `kill_blaxel` above, with 50 kills"),
    ("python -m tests.faults.kill_resume", "as `kill_resume` above, with 100 kills"),
)
