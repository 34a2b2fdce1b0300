"""A project with a long history: how quick its Runs screen and its searches are, and how much memory the app takes.

``python -m tests.bench.history [--runs 1000] [--attempts 100] [--keep DIR] [--json]``

The store is filled in bulk with rows as the engine writes them: ``--attempts`` of each run, a transcript to each. The
words of the transcripts are drawn from a vocabulary of 20,000 with the frequencies of a language (Zipf), so that there
are common words, rare ones, and everything between. Figures are medians of a few rounds in a process of its own,
which has read none of it before. With ``--keep`` the store stays where it is and is used again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.store.codec import encode_row, pack_transcript, upsert_sql
from engine.store.redact import Redactor
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    RunState,
    StepRow,
    TranscriptRow,
)
from engine.store.store import Store
from tools.sample_store import run_row, step_metrics, transcript_turns

GROUP_SIZE = 4
STEPS = 20
WORDS = 20_000
POOL = 400  # transcripts that are packed once; each attempt adds words of its own to one of them
OWN_WORDS = 120
ROUNDS = 5

QUERIES = {
    "rare word": "zzrare",
    "common word": "directory",
    "two common words": "directory tools",
    "common and rare": "directory zzrare",
    "common prefix": "to",
    "prefix": "direc",
    "prefix of everything": "wo",
    "no hit": "nosuchwordanywhere",
    "two that never meet": "zzrare zzodd",
    "punctuation": "=>",
    "punctuation found": "-c",
    "phrase by punctuation": "count.txt",
    "a sentence": "you work in a directory with files",
}


# -- building --------------------------------------------------------------------------------------------------------


def build(project: Path, runs: int, attempts: int) -> None:
    """Fill a store with ``runs`` runs of ``attempts`` attempts each, by one transaction a run."""
    rng = random.Random(11)
    vocabulary = _vocabulary(rng)
    weights = [1 / (place + 1) for place in range(WORDS)]
    pool = [pack_transcript(_transcript("pool", 0, place, rng), Redactor()) for place in range(POOL)]
    with Store.open(project) as store:
        path = store.path
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    words = rng.choices(vocabulary, weights, k=1_000_000)
    for number in range(runs):
        connection.execute("BEGIN")
        _add_run(connection, project, number, attempts=attempts, pool=pool, words=words, rng=rng)
        connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _vocabulary(rng: random.Random) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgk"
    return ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(WORDS)]


def _transcript(run_id: str, group_id: int, attempt: int, rng: random.Random) -> TranscriptRow:
    turns = transcript_turns(
        "Write the number of lines with ERROR in app.log into count.txt.", bool(attempt % 2), 3, rng
    )
    return TranscriptRow(run_id, group_id, attempt, "count-errors", float(attempt % 2), "solved", turns)


def _add_run(
    connection: sqlite3.Connection,
    project: Path,
    number: int,
    *,
    attempts: int,
    pool: Sequence[tuple[bytes, str]],
    words: Sequence[str],
    rng: random.Random,
) -> None:
    redactor = Redactor()
    created = time.time() - (number + 1) * 3600
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(created))}-{number:04x}"
    state = (RunState.DONE, RunState.DONE, RunState.FAILED, RunState.STOPPED)[number % 4]
    run = run_row(
        run_id, f"agent_{number % 17}", state, project, created_at=created, started_at=created, config_toml=_CONFIG,
        ended_at=created + 1800, step=STEPS, max_steps=STEPS, reward_first=0.1, reward_last=0.8,
    )  # fmt: skip
    rows: list[Any] = [run]
    for step in range(1, STEPS + 1):
        at = created + step * 80
        metrics = step_metrics(0.1 + 0.03 * step, step, rng)
        rows.append(StepRow(run_id, step, "done", at, at + 70, step, metrics))
    groups = max(1, attempts // GROUP_SIZE)
    for group_id in range(groups):
        step = 1 + group_id * STEPS // groups
        rows.append(
            GroupRow(
                run_id, group_id, GroupState.TRAINED, f"task-{group_id % 6}", group_id % 6, step, 0, step, None,
                0.5, 0.5, 0.0, 1.0, GROUP_SIZE, 0, created, created + 60,
            )
        )  # fmt: skip
        for attempt in range(GROUP_SIZE):
            rows.append(
                AttemptRow(
                    run_id, group_id, attempt, AttemptState.DONE, 1, float(attempt % 2), 0.5, 3, 800, 90, 1, step,
                    step, "solved", False, None, created, created + 0.2, created + 3.3,
                    {"sampling": [created, created + 2.6, 1.9], "grading": [created + 2.7, created + 3.1, 0.4]},
                    {"termination_reason": "solved", "tool_calls": 2},
                )
            )  # fmt: skip
    # The reward of a step is a column that the recorder fills from its metrics.
    for row in rows:
        connection.execute(upsert_sql(type(row)), encode_row(row, redactor))
    connection.execute(
        "UPDATE steps SET reward_mean = json_extract(metrics, '$.\"reward/mean\"') WHERE run_id = ?",
        (run_id,),
    )
    for group_id in range(groups):
        for attempt in range(GROUP_SIZE):
            body, text = pool[rng.randrange(len(pool))]
            start = rng.randrange(len(words) - OWN_WORDS)
            own = " ".join(words[start : start + OWN_WORDS])
            if group_id == 0 and attempt == 0 and number % 100 == 7:
                own += " zzrare"
            if group_id == 1 and attempt == 1 and number % 100 == 9:
                own += " zzodd"
            cursor = connection.execute(
                "INSERT INTO transcripts (run_id, group_id, attempt, task_id, reward, ending, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run_id, group_id, attempt, f"task-{group_id % 6}", float(attempt % 2), "solved", body),
            )
            connection.execute(
                "INSERT INTO transcript_text (rowid, text) VALUES (?, ?)",
                (cursor.lastrowid, f"{text}\n{own}"),
            )


_CONFIG = 'recipe = "rl"\n' + "".join(
    f"# a comment of a config, as people write them, line {n}\n" for n in range(40)
)


# -- measuring -------------------------------------------------------------------------------------------------------


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = work()
    return (time.perf_counter() - started) * 1000, result


def _searches(project: Path) -> Iterator[tuple[str, float, float, int]]:
    """For each query: what it is, median and worst milliseconds, hits; in the project, then in one run."""
    with Store.open(project) as store:
        reader = store.reader()
        run_id = reader.runs(1)[0].run_id
        for scope, of_run in (("project", None), ("run", run_id)):
            for name, text in QUERIES.items():
                taken = [
                    _timed(lambda text=text, of_run=of_run: reader.search(of_run, text, 100))
                    for _ in range(ROUNDS)
                ]
                times = [milliseconds for milliseconds, _ in taken]
                yield f"{name} ({scope})", statistics.median(times), max(times), len(taken[0][1])


def _megabytes() -> tuple[float, float]:
    """Resident memory of this process now, and its highest so far."""
    status = Path("/proc/self/status")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if not status.exists():
        return peak, peak
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024, peak


LONG = {
    "1 MB, 100 turns": (100, 90),
    "10 MB, 1,000 turns": (1000, 90),
    "10 MB, 10 turns": (10, 9000),
    "a line of 3 MB": (1, 0),
}
"""Transcripts that are long: turns, and lines of some 115 characters in each; 0: one line alone."""


def _add_long(project: Path) -> str:
    """Keep long transcripts in the newest run, each as an attempt of its group 0; returns the run's id."""
    line = "some words of a line that a program has printed, and some more of them 12345 678 until it ends here at last"
    with Store.open(project) as store:
        run = store.reader().runs(1)[0]
        recorder = store.recorder(run.run_id, files=False)
        for attempt, (turns, lines) in enumerate(LONG.values()):
            text = "\n".join(f"{number} {line}" for number in range(lines)) if lines else "x" * 3_000_000
            said = [
                {"role": ("user", "assistant", "tool")[place % 3], "content": text} for place in range(turns)
            ]
            recorder.transcript(TranscriptRow(run.run_id, 0, attempt, "long", 1.0, "solved", said))
        recorder.flush_blocking()
    return run.run_id


class _Watch:
    """An app in a test driver, and how long it takes until something is on its screen."""

    def __init__(self, project: Path) -> None:
        from loops_tui.app import LoopsApp
        from loops_tui.link import make_hosting, open_store

        self.started = time.perf_counter()
        self.app = LoopsApp(project, lambda: open_store(project), lambda: make_hosting(project))

    def shown(self) -> str:
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, true: Callable[[], bool]) -> float:
        """Milliseconds since ``started``."""
        deadline = time.perf_counter() + 30
        while not true():
            if time.perf_counter() > deadline:
                raise SystemExit(f"never shown:\n{self.shown()}")
            await asyncio.sleep(0.002)
        return (time.perf_counter() - self.started) * 1000

    async def after_key(self, key: str, *texts: str) -> float:
        """Milliseconds from a key until all of these are painted."""
        self.started = time.perf_counter()
        self.app.simulate_key(key)
        return await self.until(lambda: all(text in self.shown() for text in texts))


async def _first_rows(project: Path, text: str) -> float:
    watch = _Watch(project)
    async with watch.app.run_test(size=(120, 40)):
        return await watch.until(lambda: text in watch.shown())


async def _screens(project: Path, run_id: str) -> dict[str, float]:
    """Milliseconds from the start of the app, or from a key, to what was asked for on the screen; memory beside it."""
    from loops_tui.screens.transcript import TranscriptScreen

    with tempfile.TemporaryDirectory() as scratch:
        await _first_rows(Path(scratch), "No runs yet")  # what is imported and compiled once is not counted
        empty = statistics.median([await _first_rows(Path(scratch), "No runs yet") for _ in range(ROUNDS)])
    full = statistics.median([await _first_rows(project, "agent_3") for _ in range(ROUNDS)])
    figures = {
        "app start to first words, no runs": empty,
        "app start to rows": full,
        "… later by": full - empty,
    }
    watch = _Watch(project)
    async with watch.app.run_test(size=(120, 40)) as pilot:
        await watch.until(lambda: "1000 runs" in watch.shown() or "agent_3" in watch.shown())
        figures["memory on the Runs screen, MB"] = _megabytes()[0]
        to_runs: list[float] = []
        for _ in range(ROUNDS):
            await watch.after_key("4", "Sandboxes")
            await pilot.pause()
            to_runs.append(await watch.after_key("1", "agent_3"))
        figures["key 1 to rows"] = statistics.median(to_runs)
        sorting = [await watch.after_key("o", f"Runs by {column}") for column in ("name", "step", "reward")]
        figures["key o to rows sorted anew"] = statistics.median(sorting)
        await watch.after_key("slash", "part of")
        letters: list[float] = []
        for letter in "failed":
            before = watch.shown()
            watch.started = time.perf_counter()
            watch.app.simulate_key(letter)
            letters.append(await watch.until(lambda before=before: watch.shown() != before))
        figures["a letter typed into the filter"] = statistics.median(letters)
        await pilot.press("escape")
        await watch.after_key("F", "Type words")
        await pilot.press(*"zzrar")
        figures["a letter typed into the search to hits"] = await watch.after_key("e", "10 hits in")
        await pilot.press("escape")
        for attempt, name in enumerate(LONG):
            watch.started = time.perf_counter()
            screen = TranscriptScreen(run_id, "long", 0, attempt)
            watch.app.push_screen(screen)
            head = f"attempt {attempt + 1} of"
            figures[f"transcript of {name}: first screen"] = await watch.until(
                lambda head=head: head in watch.shown()
            )
            figures[f"transcript of {name}: all of it"] = await watch.until(
                lambda screen=screen: (
                    screen.view is not None and screen.view.layout is not None and screen.view.layout.whole
                )
            )
            watch.app.pop_screen()
            await pilot.pause()
        figures["memory at the end, MB"] = _megabytes()[0]
    return figures


def measure(project: Path) -> dict[str, Any]:
    """All figures of a store; in this process."""
    with Store.open(project) as store:
        reader = store.reader()
        rows = {"runs": len(reader.runs(10_000))}
        with reader._reading() as connection:
            for table in ("attempts", "transcripts"):
                rows[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        size = store.path.stat().st_size / 1e6
    screens = asyncio.run(_screens(project, _add_long(project)))
    searches = {
        name: {"ms": round(median, 1), "worst_ms": round(worst, 1), "hits": hits}
        for name, median, worst, hits in _searches(project)
    }
    return {
        "rows": rows,
        "store_mb": round(size),
        **{name: round(value, 1) for name, value in screens.items()},
        "searches": searches,
        "slowest search": max(entry["ms"] for entry in searches.values()),
        "memory at its highest, MB": round(_megabytes()[1]),
    }


def _print(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        if not isinstance(value, dict):
            print(f"{name:42} {value:>10}")
        elif name == "rows":
            print(f"{'rows':42} {', '.join(f'{count:,} {what}' for what, count in value.items()):>10}")
        else:
            for query, entry in value.items():
                print(
                    f"  {query:40} {entry['ms']:>8} ms (worst {entry['worst_ms']} ms), {entry['hits']} hits"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--attempts", type=int, default=100, help="of each run")
    parser.add_argument("--keep", type=Path, help="where the store is to stay")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure is not None:
        print(json.dumps(measure(args.measure)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        project = args.keep or Path(scratch)
        project.mkdir(parents=True, exist_ok=True)
        if not Store.exists(project):
            started = time.perf_counter()
            build(project, args.runs, args.attempts)
            print(f"built in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        command = [sys.executable, "-m", "tests.bench.history", "--measure", str(project)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(done.stdout)
    if args.json:
        print(json.dumps(figures))
    else:
        _print(figures)


if __name__ == "__main__":
    main()
