"""One run, live: where it stands, how it learns, its groups and attempts, its log."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from engine.store.rows import AttemptRow, GroupRow
from loops_tui.feed import ReadPlan
from loops_tui.health import Finding
from loops_tui.screens.base import Banner, TopLine
from loops_tui.screens.run_keys import RUN_BINDINGS, TABS
from loops_tui.screens.run_panes import AttemptPane, LogPane, RunHeader, SidePane
from loops_tui.screens.run_places import RunPlaces
from loops_tui.screens.run_plot import CurvePane
from loops_tui.screens.run_read import RunView, RunWatch, RunWish
from loops_tui.screens.run_tables import (
    ATTEMPT_COLUMNS,
    BIN_COLUMNS,
    GROUP_COLUMNS,
    Bin,
    attempt_cells,
    attempt_key,
    attempts_title,
    bin_cells,
    bins_of,
    group_cells,
    groups_title,
    histogram_words,
    most_of,
    place_of,
    why_rejected,
)
from loops_tui.signals import findings
from loops_tui.theme import Tone
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import entitle, plain
from loops_tui.widgets.tab_line import TabLine
from loops_tui.widgets.virtual_table import Cells, VirtualTable

CLOCK_SECONDS = 1.0
HELD = "held still (space), the run goes on"


class RunScreen(RunPlaces):
    """A run, of this process or of any other."""

    AUTO_FOCUS = ""  # which pane it is depends on the room there is
    BINDINGS: ClassVar[list[BindingType]] = RUN_BINDINGS

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.held = False
        self._watch = RunWatch(run_id)
        self._wish = RunWish()
        self._bins: list[Bin] = []
        self._keys_for: object = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield RunHeader()
        yield TabLine(TABS)
        with Vertical(id="body"):
            with Horizontal(id="learning"):
                yield CurvePane()
                yield SidePane()
                yield VirtualTable[Bin](
                    BIN_COLUMNS,
                    lambda row: row.key,
                    lambda row: bin_cells(row, most_of(self._bins)),
                    empty=[plain("No rewards yet", Tone.DIM)],
                    id="rewards",
                    classes="pane",
                )
            with Horizontal(id="work"):
                yield VirtualTable[GroupRow](
                    GROUP_COLUMNS,
                    lambda row: str(row.group_id),
                    self._group_cells,
                    empty=[plain("No groups yet", Tone.DIM)],
                    tail=True,
                    id="groups",
                    classes="pane",
                )
                yield VirtualTable[AttemptRow](
                    ATTEMPT_COLUMNS,
                    attempt_key,
                    self._attempt_cells,
                    empty=[plain("No attempts yet", Tone.DIM)],
                    id="attempts",
                    classes="pane",
                )
            with Horizontal(id="bottom"):
                yield LogPane()
                yield AttemptPane()
                yield SidePane("data")
        yield FilterLine("text to find in the log; enter keeps the search, . and , go from match to match")
        yield KeyBar()

    def on_mount(self) -> None:
        self.groups.border_title = "Groups"
        self.attempts.border_title = "Attempts"
        self.rewards.border_title = "Rewards"
        self.log_view.entitle()
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Runs", self.run_id])
        self.choose_tab("overview")
        self.set_interval(CLOCK_SECONDS, self._tick)

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        counted = self._side == "rewards" or self.has_class("-huge")
        watch, wish = self._watch, replace(self._wish, histogram=counted)
        if self.held and self.view is not None and self.view.wish == wish:
            return None
        return lambda reader: watch.read(reader, wish)

    def take(self, data: object) -> None:
        view = cast("RunView", data)
        if replace(view.wish, histogram=False) != self._wish:
            return  # something else was chosen while this was read
        self.view = replace(view, pointed=self.curve.cursor)
        if view.supervised and not self.supervised:
            self.become_supervised()
        self.show_rows()
        self.press_early_keys()

    def show_rows(self) -> None:
        view = self.view
        if view is None:
            return
        self._write_top(view)
        shown = self._tab if self.tabbed else None
        found = self._show_clocks()
        if shown in (None, "overview"):
            self.curve.write(view)
            self._show_side(view, found)
            if view.supervised:
                self.query_one("#data", SidePane).write(view, found, "data")
        if shown in (None, "groups"):
            self.groups.show(view.groups)
            entitle(self.groups, groups_title(view), why_rejected(self.groups.cursor_item))
        if shown in (None, "attempts"):
            self.attempts.show(view.attempts)
            entitle(self.attempts, attempts_title(view))
            self._show_attempt()
        if shown in (None, "overview", "log"):
            self.log_view.write(view)
        keys_for = (view.run.state, view.wish, bool(view.names), bool(view.evals), len(view.saved))
        if keys_for != self._keys_for:
            self._keys_for = keys_for
            self.refresh_bindings()

    def _write_top(self, view: RunView) -> None:
        """Where one is, and that the view is held still: in a line that is always there, so that nothing moves."""
        state = ((HELD, Tone.WARN), ("  ", Tone.PLAIN)) if self.held else ()
        self.query_one(TopLine).write(
            [self.app.project_dir.name or "/", "Runs", view.run.name],
            (*state, (view.run.run_id, Tone.DIM)),
        )

    def _show_clocks(self) -> list[Finding]:
        """What changes with time alone."""
        view = self.view
        assert view is not None
        found = findings(view.run, view.learning, view.host, view.now, view.sandboxes)
        self.query_one(RunHeader).write(view, found)
        return found

    def _show_side(self, view: RunView, found: list[Finding]) -> None:
        if view.wish.histogram:
            self._bins = bins_of(view.rewards)
            self.rewards.show(self._bins)
            of = "Rewards" if view.wish.step is None else f"Rewards of step {view.wish.step}"
            entitle(self.rewards, of, histogram_words(view.rewards))
        if self._side != "rewards" or self.has_class("-huge"):
            what = self._side if self._side != "rewards" else "step"
            self.query_one("#side", SidePane).write(view, found, what)

    def _show_attempt(self) -> None:
        now = self.view.now if self.view is not None else time.time()
        self.query_one(AttemptPane).write(self.attempts.cursor_item, now)

    def _tick(self) -> None:
        """The clocks of a live run."""
        view = self.view
        if view is None or not self.in_view or self.held or view.run.state.final:
            return
        self.view = replace(view, now=time.time())
        with self.app.batch_update():
            self._show_clocks()
            if not self.tabbed or self._tab == "attempts":
                self.attempts.show(view.attempts)
                self._show_attempt()

    def _group_cells(self, row: GroupRow) -> Cells:
        size = self.view.run.group_size if self.view is not None and row.group_id >= 0 else 0
        return group_cells(row, size)

    def _attempt_cells(self, row: AttemptRow) -> Cells:
        view = self.view
        now = view.now if view is not None else time.time()
        return attempt_cells(row, now, mixed=view is not None and view.group_id is None)

    def _want(self, wish: RunWish) -> None:
        """See something else of the run."""
        if wish != self._wish:
            self._wish = wish
            self.refresh_bindings()
            self.app.poke()

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view if self.is_mounted else None
        live = view is not None and not view.run.state.final
        if action == "hold":
            return live or self.held
        if action == "open":
            return view is not None and bool(view.groups) and not (self.tabbed and self._tab == "log")
        if action == "follow":
            return not self._wish.following
        if action == "evaluations":
            return view is not None and bool(view.evals)
        return super().check_action(action, parameters)

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        if event.table is self.attempts:
            self._show_attempt()
        if event.table is not self.groups:
            return
        entitle(self.groups, self.groups.border_title or "", why_rejected(self.groups.cursor_item))
        if event.by_hand and event.key is not None:
            self.attempts.touched = False
            self._want(replace(self._wish, group_id=int(event.key), rewards=None))

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        if event.table is self.groups:
            self._want(replace(self._wish, group_id=int(event.key), rewards=None))
            self._go_to_attempts()
        elif event.table is self.rewards:
            low, high = next(((row.low, row.high) for row in self._bins if row.key == event.key), (0.0, 0.0))
            self.attempts.touched = False
            self._want(replace(self._wish, rewards=(low, high), group_id=None))
            self._go_to_attempts()
        else:
            self._open_transcript(*place_of(event.key))

    def _go_to_attempts(self) -> None:
        if self.tabbed:
            self.choose_tab("attempts")
        self.attempts.focus()

    def on_curve_pane_pointed(self, event: CurvePane.Pointed) -> None:
        if self.view is not None:
            self.view = replace(self.view, pointed=event.step)
            self.show_rows()

    def on_curve_pane_chosen(self, event: CurvePane.Chosen) -> None:
        self.groups.touched = self.attempts.touched = False
        self._want(RunWish(step=event.step))
        if self.tabbed:
            self.choose_tab("groups")
        self.groups.focus()

    def _open_transcript(self, group_id: int, attempt: int) -> None:
        from loops_tui.screens.transcript import TranscriptScreen

        name = self.view.run.name if self.view is not None else self.run_id
        self.app.push_screen(TranscriptScreen(self.run_id, name, group_id, attempt))

    def action_open(self) -> None:
        if self.tabbed and self._tab not in ("groups", "attempts"):
            self.choose_tab("groups")
        elif self._tab == "attempts" if self.tabbed else self.attempts.has_focus:
            self.attempts.action_open()
        else:
            self._go_to_attempts()

    def action_hold(self) -> None:
        self.held = not self.held
        if self.view is not None:
            self._write_top(self.view)
        if not self.held:
            self.app.poke()

    def action_evaluations(self) -> None:
        """From training's groups to those of the newest evaluation, to older ones, and back."""
        view = self.view
        names = [row.eval_id for row in reversed(view.evals)] if view is not None else []
        place = names.index(self._wish.eval_id) + 1 if self._wish.eval_id in names else 0
        self.groups.touched = self.attempts.touched = False
        self._want(RunWish(eval_id=names[place]) if place < len(names) else RunWish())

    def action_follow(self) -> None:
        self.groups.touched = self.attempts.touched = False
        self.curve.clear_cursor()
        self._want(RunWish())

    def action_back(self) -> None:
        """Out of what was chosen, out of one large pane, out of the run."""
        if self._wish.rewards is not None or self._wish.step is not None or self._wish.eval_id is not None:
            self.action_follow()
        elif self.curve.cursor is not None:
            self.curve.clear_cursor()
        elif self._zoomed:
            self.action_zoom()
        else:
            self.dismiss(None)
