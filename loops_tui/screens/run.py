"""One run, live: where it stands, how it learns, its groups and attempts, its log."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from engine.store.rows import AttemptRow, GroupRow, RunState
from loops_tui.feed import ReadPlan
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.run_panes import CurvePane, FiguresPane, RunHeader, TabLine
from loops_tui.screens.run_read import RunView, RunWatch
from loops_tui.screens.run_text import (
    ATTEMPT_COLUMNS,
    GROUP_COLUMNS,
    attempt_cells,
    group_cells,
    log_lines,
)
from loops_tui.signals import findings, signals
from loops_tui.theme import Tone
from loops_tui.widgets.confirm import confirm
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import SpanView, entitle, plain
from loops_tui.widgets.virtual_table import Cells, VirtualTable

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

TABS = {"overview": "Overview", "groups": "Groups", "log": "Log"}
CLOCK_SECONDS = 1.0


class RunScreen(FedScreen):
    """A run, of this process or of any other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "open", "Open", id="run.open", tooltip="A group's attempts; an attempt's transcript"
        ),
        Binding(
            "left_square_bracket", "tab(-1)", "Tab", show=False, id="run.tab_before", tooltip="The tab before"
        ),
        Binding(
            "right_square_bracket",
            "tab(1)",
            "Tab",
            key_display="[ ]",
            id="run.tab_after",
            tooltip="The next tab",
        ),
        Binding("space", "hold", "Hold view", id="run.hold", tooltip="Hold the view still; the run goes on"),
        Binding("v", "curve", "Plot", id="run.curve", tooltip="Plot another figure"),
        Binding("f", "follow", "Newest", id="run.follow", tooltip="Follow the newest group again"),
        Binding(
            "P", "pause", "Pause", id="run.pause", tooltip="Ask the run to pause, or to go on; asks first"
        ),
        Binding("s", "stop", "Stop", id="run.stop", tooltip="End the run after the step in hand; asks first"),
        Binding("A", "abort", "Abort", id="run.abort", tooltip="End the run now; asks first"),
        Binding("escape", "back", "Back", id="run.back", tooltip="Back to the runs"),
    ]

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id
        self.held = False
        self.view: RunView | None = None
        self._watch = RunWatch(run_id)
        self._group_id: int | None = None
        self._tab = "overview"
        self._log_seen = -1
        self.add_class("-tab-overview")  # from the start: a class that changes lays everything out anew

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield RunHeader()
        yield TabLine(TABS)
        with Vertical(id="body"):
            with Horizontal(id="learning"):
                yield CurvePane()
                yield FiguresPane()
            with Horizontal(id="work"):
                yield VirtualTable[GroupRow](
                    GROUP_COLUMNS,
                    lambda row: str(row.group_id),
                    self._group_cells,
                    empty=[plain("No groups yet", Tone.DIM)],
                    id="groups",
                    classes="pane",
                )
                yield VirtualTable[AttemptRow](
                    ATTEMPT_COLUMNS,
                    lambda row: str(row.attempt),
                    self._attempt_cells,
                    empty=[plain("No attempts yet", Tone.DIM)],
                    id="attempts",
                    classes="pane",
                )
            yield SpanView(id="log", classes="pane")
        yield KeyBar()

    @property
    def groups(self) -> VirtualTable[GroupRow]:
        return cast("VirtualTable[GroupRow]", self.query_one("#groups", VirtualTable))

    @property
    def attempts(self) -> VirtualTable[AttemptRow]:
        return cast("VirtualTable[AttemptRow]", self.query_one("#attempts", VirtualTable))

    @property
    def log_view(self) -> SpanView:
        return self.query_one("#log", SpanView)

    def on_mount(self) -> None:
        self.groups.border_title = "Groups"
        self.attempts.border_title = "Attempts"
        self.log_view.border_title = "Log"
        self.log_view.follow = True
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Runs", self.run_id])
        self._choose_tab("overview")
        self.set_interval(CLOCK_SECONDS, self._tick)

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        if self.held:
            return None
        watch, group_id = self._watch, self._group_id

        def read(reader: StoreReader) -> RunView:
            return watch.read(reader, group_id)

        return read

    def take(self, data: object) -> None:
        view = cast("RunView", data)
        if self.held or (self._group_id is not None and view.group_id != self._group_id):
            return  # the view was held, or another group chosen, while this was read
        self.view = view
        self._show()

    def _show(self) -> None:
        view = self.view
        if view is None:
            return
        run = view.run
        state = (("held, the run goes on  ", Tone.WARN),) if self.held else ()
        self.query_one(TopLine).write(
            [self.app.project_dir.name or "/", "Runs", run.name],
            (*state, (run.run_id, Tone.DIM)),
        )
        learning = signals(run, view.steps, view.groups[::-1])
        found = findings(run, learning, view.host, view.now, view.sandboxes)
        self.query_one(RunHeader).write(view, found)
        if not self.is_compact or self._tab == "overview":
            self.query_one(CurvePane).write(view)
            self.query_one(FiguresPane).write(view)
        if not self.is_compact or self._tab == "groups":
            self.groups.show(view.groups)
            self.attempts.show(view.attempts)
            newest = "" if self._group_id is not None else " (newest)"
            title = "Attempts" if view.group_id is None else f"Attempts of group {view.group_id}{newest}"
            entitle(self.attempts, title)
        last = view.log[-1].log_id if view.log else 0
        if last != self._log_seen:
            self._log_seen = last
            self.log_view.show(log_lines(view.log))
        self.refresh_bindings()

    def _tick(self) -> None:
        """The clocks of a live run."""
        view = self.view
        if view is not None and self.in_view and not self.held and not view.run.state.final:
            self.view = replace(view, now=time.time())
            self._show()

    def _group_cells(self, row: GroupRow) -> Cells:
        return group_cells(row, self.view.run.group_size if self.view is not None else 0)

    def _attempt_cells(self, row: AttemptRow) -> Cells:
        return attempt_cells(row, self.view.now if self.view is not None else time.time())

    def own_notice(self) -> str | None:
        return "the view is held still; the run goes on (space lets it go)" if self.held else None

    # -- tabs --------------------------------------------------------------------------------------------------

    def _choose_tab(self, tab: str) -> None:
        self._tab = tab
        for name in TABS:
            if self.has_class(f"-tab-{name}") != (name == tab):
                self.set_class(name == tab, f"-tab-{name}")
        self.query_one(TabLine).write(tab)
        if self.is_compact:
            (self.groups if tab != "log" else self.log_view).focus()
        elif self.focused is None:
            self.groups.focus()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show)

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        self._choose_tab(event.tab)

    def action_tab(self, by: int) -> None:
        names = list(TABS)
        self._choose_tab(names[(names.index(self._tab) + by) % len(names)])

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view if self.is_mounted else None
        live = view is not None and not view.run.state.final
        if action == "tab":
            return self.is_compact
        if action in ("stop", "abort", "pause"):
            return live
        if action == "hold":
            return live or self.held
        if action == "open":
            return view is not None and bool(view.groups)
        if action == "follow":
            return self._group_id is not None
        if action == "curve":
            return view is not None and bool(view.steps)
        return super().check_action(action, parameters)

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        if event.table is self.groups and event.by_hand and event.key is not None:
            self._group_id = int(event.key)
            self.attempts.touched = False
            self.refresh_bindings()
            self.app.poke()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        if event.table is self.groups:
            if self.is_compact and self._tab != "groups":
                self._choose_tab("groups")
                return
            self._group_id = int(event.key)
            self.app.poke()
            self.attempts.focus()
        elif self.view is not None and self.view.group_id is not None:
            self._open_transcript(self.view.group_id, int(event.key))

    def _open_transcript(self, group_id: int, attempt: int) -> None:
        from loops_tui.screens.transcript import TranscriptScreen

        name = self.view.run.name if self.view is not None else self.run_id
        self.app.push_screen(TranscriptScreen(self.run_id, name, group_id, attempt))

    def action_open(self) -> None:
        if self.is_compact and self._tab != "groups":
            self._choose_tab("groups")
        elif self.attempts.has_focus:
            self.attempts.action_open()
        else:
            self.attempts.focus()

    def action_hold(self) -> None:
        self.held = not self.held
        self.update_banner()
        self._show()
        if not self.held:
            self.app.poke()

    def action_curve(self) -> None:
        if self.is_compact and self._tab != "overview":
            self._choose_tab("overview")
        self.query_one(CurvePane).next()

    def action_follow(self) -> None:
        self._group_id = None
        self.groups.touched = self.attempts.touched = False
        self.app.poke()

    def action_back(self) -> None:
        self.dismiss(None)

    def action_pause(self) -> None:
        paused = self.view is not None and self.view.run.state is RunState.PAUSED
        if paused:
            self._ask("Resume", "resume", "It goes on where it stands.")
        else:
            self._ask("Pause", "pause", "Attempts in flight end; no new ones begin until it is resumed.")

    def action_stop(self) -> None:
        self._ask("Stop", "stop", "The step in hand is finished and trained first.")

    def action_abort(self) -> None:
        self._ask("Abort", "abort", "The step in hand is lost; what it holds is released.")

    def _ask(self, verb: str, kind: str, note: str) -> None:
        name = self.view.run.name if self.view is not None else ""

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self.app.ask_of_run(self.run_id, kind)

        self.app.push_screen(confirm(verb, "runs", [f"{name}  {self.run_id}"], note), answered)
