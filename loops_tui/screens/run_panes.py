"""The panes of the Run screen that are neither tables nor the plot."""

from __future__ import annotations

from collections.abc import Sequence

from engine.store.rows import AttemptRow
from loops_tui.health import Finding
from loops_tui.readonly import may_act
from loops_tui.screens.attempt_time import attempt_lines
from loops_tui.screens.run_facts import health_lines, run_lines, step_lines
from loops_tui.screens.run_read import RunView
from loops_tui.screens.run_supervised import data_lines
from loops_tui.screens.run_text import LEVELS, header, log_line, wrapped_log_line
from loops_tui.theme import Tone
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import Line, SpanPane, SpanView, entitle

WHOLE_LINES_FROM = 10  # rows of the log's pane: with fewer of them, more lines are worth more than whole ones


class RunHeader(SpanPane):
    """Where the run stands, and what is wrong with it."""

    DEFAULT_CSS = "RunHeader { height: auto; min-height: 2; max-height: 8; }"

    def __init__(self) -> None:
        super().__init__(id="header")
        self._view: RunView | None = None
        self._findings: Sequence[Finding] = ()

    def write(self, view: RunView, found: Sequence[Finding]) -> None:
        before = len(self.lines)
        self._view, self._findings = view, found
        self.recompose_lines()
        if len(self.lines) != before:
            self.refresh(layout=True)

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self._view is None else header(self._view, self._findings, width, acts=may_act(self))


class SidePane(SpanView):
    """Beside the plot: a step in numbers, the run's health, its data, or its facts."""

    def __init__(self, place: str = "side") -> None:
        super().__init__(id=place, classes="pane")
        self._view: RunView | None = None
        self._findings: Sequence[Finding] = ()
        self._what = "step"

    def write(self, view: RunView, found: Sequence[Finding], what: str) -> None:
        keep = what == self._what
        self._view, self._findings, self._what = view, found, what
        step = view.shown_step
        titles = {
            "health": "Health",
            "run": "Run",
            "step": f"Step {step.step}" if step else "Last step",
            "data": "Data and checkpoints",
        }
        entitle(self, titles[what])
        self._write_lines(keep)

    def _write_lines(self, keep: bool = True) -> None:
        view, width = self._view, self.scrollable_content_region.width
        if view is None or width < 1:
            return
        if self._what == "health":
            lines = health_lines(self._findings, view.run, width)
        elif self._what == "run":
            lines = run_lines(view, width)
        elif self._what == "data":
            lines = data_lines(view, width)
        else:
            lines = step_lines(view, width)
        self.show(lines, keep=keep)

    def on_resize(self) -> None:
        self._write_lines()


class AttemptPane(SpanPane):
    """The attempt under the cursor: where its time went, how it ended."""

    def __init__(self) -> None:
        super().__init__(id="attempt", classes="pane")
        self._attempt: AttemptRow | None = None
        self._now = 0.0

    def write(self, attempt: AttemptRow | None, now: float) -> None:
        self._attempt, self._now = attempt, now
        title = "Attempt" if attempt is None else f"Attempt {attempt.attempt} of group {attempt.group_id}"
        entitle(self, title)
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return [] if self._attempt is None else attempt_lines(self._attempt, self._now, width)[:height]


class LogPane(SearchView):
    """The run's log: all of it, or from a level on; what is looked for is marked."""

    def __init__(self) -> None:
        super().__init__(id="log", classes="pane")
        self.follow = True
        self._seen = 0
        self._all: list[tuple[str, Line]] = []
        self._room = 0  # columns to which its lines are broken; 0: each is one line, cut at the edge
        self.level = LEVELS[0]

    def write(self, view: RunView) -> None:
        fresh = [row for row in view.log if row.log_id > self._seen]
        if fresh:
            self._seen = fresh[-1].log_id
            self._all.extend((row.level, log_line(row)) for row in fresh)
            self._show_level()
        self.entitle()

    def on_resize(self) -> None:
        """Where there is room for whole lines, they are whole."""
        width, height = self.scrollable_content_region.size
        room = width if height >= WHOLE_LINES_FROM else 0
        if room != self._room:
            self._room = room
            self._show_level()

    def turn_level(self) -> None:
        """Show from the next level on."""
        self.level = LEVELS[(LEVELS.index(self.level) + 1) % len(LEVELS)]
        self._show_level()
        self.entitle()

    def entitle(self) -> None:
        what = {"all": "Log", "warning": "Log: warnings and errors", "error": "Log: errors"}[self.level]
        entitle(self, what, self.match_words())

    def _show_level(self) -> None:
        shown = {"all": None, "warning": ("warning", "error"), "error": ("error",)}[self.level]
        lines = [line for level, line in self._all if shown is None or level in shown]
        if not lines and self._all:
            lines = [(("no such line", Tone.DIM),)]
        if self._room:
            lines = [part for line in lines for part in wrapped_log_line(line, self._room)]
        self.show(lines)
