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
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.store.store import Store
from tests.bench.long_history import LONG, add_long, build

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp
    from loops_tui.screens.transcript import TranscriptScreen

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


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds on the clock, and of the processor in all threads: on a busy machine the second is the steadier."""

    wall: float
    cpu: float


class _Watch:
    """An app in a test driver, looked at whenever it paints: how long until something is on its screen."""

    def __init__(self, project: Path) -> None:
        from loops_tui.app import LoopsApp
        from loops_tui.link import make_hosting, open_store

        painted = self._painted = asyncio.Event()

        class Seen(LoopsApp):
            def _display(self, screen: Any, renderable: Any) -> None:
                super()._display(screen, renderable)
                painted.set()

        self.start()
        self.app = Seen(project, lambda: open_store(project), lambda: make_hosting(project))

    def start(self) -> None:
        """From here on it is measured."""
        self._started = time.perf_counter(), time.process_time()

    def shown(self) -> str:
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def until(self, true: Callable[[], bool]) -> Took:
        """What it took since ``start``."""
        deadline = time.perf_counter() + 60
        while not true():
            if time.perf_counter() > deadline:
                raise SystemExit(f"never shown:\n{self.shown()}")
            self._painted.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._painted.wait(), 0.5)
        wall, cpu = self._started
        return Took((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)

    async def until_shown(self, text: str) -> Took:
        return await self.until(lambda: text in self.shown())

    async def after_key(self, key: str, text: str) -> Took:
        """From a key until this is painted."""
        self.start()
        self.app.simulate_key(key)
        return await self.until_shown(text)


def _median(taken: Sequence[Took]) -> Took:
    return Took(statistics.median(one.wall for one in taken), statistics.median(one.cpu for one in taken))


async def _first_rows(project: Path, text: str) -> Took:
    watch = _Watch(project)
    async with watch.app.run_test(size=(120, 40)):
        return await watch.until_shown(text)


async def _screens(project: Path, run_id: str) -> dict[str, Any]:
    """From the start of the app, or from a key, to what was asked for on the screen; memory beside it."""
    from loops_tui.screens.transcript import TranscriptScreen

    with tempfile.TemporaryDirectory() as scratch:
        await _first_rows(Path(scratch), "No runs yet")  # what is imported and compiled once is not counted
        empty = _median([await _first_rows(Path(scratch), "No runs yet") for _ in range(ROUNDS)])
    full = _median([await _first_rows(project, "agent_3") for _ in range(ROUNDS)])
    later = Took(full.wall - empty.wall, full.cpu - empty.cpu)
    figures: dict[str, Any] = {
        "app start to first words, no runs": empty,
        "app start to rows": full,
        "… later by": later,
    }
    watch = _Watch(project)
    async with watch.app.run_test(size=(120, 40)) as pilot:
        await watch.until_shown("agent_3")
        figures["memory on the Runs screen, MB"] = _megabytes()[0]
        to_runs: list[Took] = []
        for _ in range(ROUNDS):
            await watch.after_key("4", "Sandboxes")
            await pilot.pause()
            to_runs.append(await watch.after_key("1", "agent_3"))
        figures["key 1 to rows"] = _median(to_runs)
        columns = ("name", "step", "reward")
        figures["key o to rows sorted anew"] = _median(
            [await watch.after_key("o", f"Runs by {c}") for c in columns]
        )
        await watch.after_key("slash", "part of")
        await pilot.press(*"state:fail")
        await watch.until_shown("Runs (")
        figures["a letter typed into the filter"] = await watch.after_key("x", "(0 of ")
        await pilot.press("escape")
        await watch.after_key("F", "Type words")
        await pilot.press(*"zz")
        await watch.until_shown("hits in")
        watch.start()
        watch.app.simulate_key("r")
        figures["a letter typed into the search to hits"] = await watch.until(
            lambda: _found(watch.app) == "zzr"
        )
        await pilot.press("escape")
        for attempt, name in enumerate(LONG):
            watch.start()
            screen = TranscriptScreen(run_id, "long", 0, attempt)
            watch.app.push_screen(screen)
            figures[f"transcript of {name}: first screen"] = await watch.until_shown(
                f"attempt {attempt + 1} of"
            )
            figures[f"transcript of {name}: all of it"] = await watch.until(
                lambda screen=screen: _is_whole(screen)
            )
            watch.app.pop_screen()
            await pilot.pause()
        figures["memory at the end, MB"] = _megabytes()[0]
    return figures


def _found(app: LoopsApp) -> str:
    """The words whose hits are shown."""
    found = getattr(app.screen, "found", None)
    return "" if found is None else found.text


def _is_whole(screen: TranscriptScreen) -> bool:
    view = screen.view
    return view is not None and view.layout is not None and view.layout.whole


def measure(project: Path) -> dict[str, Any]:
    """All figures of a store; in this process."""
    with Store.open(project) as store:
        reader = store.reader()
        rows = {"runs": len(reader.runs(10_000))}
        with reader._reading() as connection:
            for table in ("attempts", "transcripts"):
                rows[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        size = store.path.stat().st_size / 1e6
    screens = asyncio.run(_screens(project, add_long(project)))
    searches = {
        name: {"ms": round(median, 1), "worst_ms": round(worst, 1), "hits": hits}
        for name, median, worst, hits in _searches(project)
    }
    return {
        "rows": rows,
        "store_mb": round(size),
        **{name: _rounded(value) for name, value in screens.items()},
        "searches": searches,
        "slowest search": max(entry["ms"] for entry in searches.values()),
        "memory at its highest, MB": round(_megabytes()[1]),
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, Took):
        return {"ms": round(value.wall, 1), "cpu_ms": round(value.cpu, 1)}
    return round(value, 1)


def _print(figures: dict[str, Any]) -> None:
    for name, value in figures.items():
        if not isinstance(value, dict):
            print(f"{name:50} {value:>10}")
        elif name == "rows":
            print(f"{name:50} {', '.join(f'{count:,} {what}' for what, count in value.items())}")
        elif "cpu_ms" in value:
            print(f"{name:50} {value['ms']:>10} ms ({value['cpu_ms']} ms of processor)")
        else:
            for query, entry in value.items():
                print(
                    f"  {query:48} {entry['ms']:>10} ms (worst {entry['worst_ms']} ms), {entry['hits']} hits"
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
