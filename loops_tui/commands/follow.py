"""Follow a run in plain lines: its log as it grows, and on a terminal a progress bar under it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

from loops_tui.commands.printed import harmless_printing, to_draw_on
from loops_tui.scores import score_words
from loops_tui.widgets.safe_text import safe, safe_lines

if TYPE_CHECKING:
    from engine.store.queries import StoreReader
    from engine.store.rows import LogRow, RunRow
    from engine.store.store import Store

LOOK_SECONDS = 0.25
RECONCILE_SECONDS = 5.0
_SHOWN_LEVELS = frozenset({"info", "warning", "error"})
_BATCH = 1000


class Sink(Protocol):
    """Where lines and progress go."""

    def lines(self, lines: list[str]) -> None: ...

    def progress(self, run: RunRow) -> None: ...


class PlainSink:
    """Lines alone, for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def lines(self, lines: list[str]) -> None:
        if lines:
            print("\n".join(lines), file=self._stream, flush=True)

    def progress(self, run: RunRow) -> None:
        """A pipe has the step lines of the log."""


class TerminalSink:
    """Lines above a bar that shows the step, the reward and the phase."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(file=stream, highlight=False),
            refresh_per_second=4,
            transient=True,
        )
        self._task = self.bar.add_task("", total=None)

    def lines(self, lines: list[str]) -> None:
        for line in lines:
            self.bar.console.print(line, markup=False, soft_wrap=True)

    def progress(self, run: RunRow) -> None:
        score = score_words(run)
        reward = "" if score is None else f"{score}  " if run.recipe == "sft" else f"reward {score}  "
        phase = "" if run.state.final else safe(run.phase, 40)
        self.bar.update(
            self._task,
            completed=run.step,
            total=run.max_steps,
            description=f"{reward}{run.state} {phase}".strip(),
        )


@contextmanager
def progress_sink(stream: TextIO) -> Iterator[Sink]:
    """A bar where the stream is a terminal, plain lines elsewhere."""
    if not stream.isatty():
        yield PlainSink(stream)
        return
    sink = TerminalSink(to_draw_on(stream))
    with sink.bar, harmless_printing(drawn=True):  # the bar takes what is printed, to show it above itself
        yield sink


class Follower:
    """Reads one run's news from the store."""

    def __init__(self, reader: StoreReader, run_id: str, sink: Sink, after_log: int = 0) -> None:
        self._reader = reader
        self._run_id = run_id
        self._sink = sink
        self._after_log = after_log
        self._seen: int | None = None
        self.errors: list[str] = []
        """Texts of the errors that were shown."""

    def look(self) -> RunRow | None:
        """Show what is new; the run's row if anything has changed in the store."""
        version = self._reader.data_version()
        if version == self._seen:
            return None
        self._seen = version
        run = self._reader.get_run(self._run_id)
        while True:
            rows = self._reader.log(self._run_id, self._after_log, _BATCH)
            if rows:
                self._after_log = rows[-1].log_id
                self._sink.lines([line for row in rows for line in log_lines(row)])
                self.errors += [row.text for row in rows if row.level == "error"]
            if len(rows) < _BATCH:
                break
        if run is not None:
            self._sink.progress(run)
        return run


def log_lines(row: LogRow) -> list[str]:
    """A log row as lines that a terminal only shows; debug rows stay in the store."""
    if row.level not in _SHOWN_LEVELS:
        return []
    stamp = time.strftime("%H:%M:%S", time.localtime(row.at))
    mark = "" if row.level == "info" else f"{row.level}: "
    first, *rest = safe_lines(row.text) if row.text else [""]
    return [f"{stamp} {mark}{first}", *(f"         {line}" for line in rest)]


def follow_to_end(store: Store, run_id: str, after_log: int) -> RunRow:
    """Print a run until it has ended, wherever it lives; returns its last row. Ctrl+c leaves the run alone."""
    reader = store.reader()
    next_check = 0.0
    with progress_sink(sys.stdout) as sink:
        follower = Follower(reader, run_id, sink, after_log)
        while True:
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + RECONCILE_SECONDS
                store.reconcile()
            run = follower.look()
            if run is not None and run.state.final:
                follower.look()
                return run
            time.sleep(LOOK_SECONDS)


class BackgroundFollower:
    """Follows a run of this process from a thread, while the main thread carries it; its log from ``after_log`` on."""

    def __init__(self, project_dir: Path, after_log: int = 0) -> None:
        self._project_dir = project_dir
        self._after_log = after_log
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: str | None = None
        self._errors: list[str] = []

    def start(self, run_id: str) -> None:
        self._thread = threading.Thread(target=self._follow, args=(run_id,), name="progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Show the last lines and end; bounded."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def has_said(self, error: str) -> bool:
        """Whether a line of the log has told of this error already."""
        return any(error in said for said in self._errors)

    def _follow(self, run_id: str) -> None:
        from engine.store.errors import StoreError
        from engine.store.store import Store

        try:
            with Store.open(self._project_dir) as store, progress_sink(sys.stderr) as sink:
                follower = Follower(store.reader(), run_id, sink, self._after_log)
                self._errors = follower.errors
                while not self._end.wait(LOOK_SECONDS):
                    follower.look()
                follower.look()
        except StoreError as error:
            # The run itself ends by the same trouble and says so; here it is only kept for the last line.
            self.failure = str(error)
        except OSError as error:
            # The terminal hung up; the run drains without an audience.
            self.failure = f"nobody reads the progress any more: {error}"
