"""Every sandbox that may exist: who holds it, how old it is, and what was left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size

from loops_tui.feed import ReadPlan
from loops_tui.lease_words import counted, host_words
from loops_tui.readonly import may_act
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.sandboxes_text import (
    COLUMNS,
    lease_cells,
    lease_details,
    limits_words,
    nothing_held,
    orphan_lines,
    unisolated_words,
)
from loops_tui.theme import Tone
from loops_tui.widgets.confirm import Ask, Choice, confirm
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import Line, Span, SpanPane, entitle
from loops_tui.widgets.virtual_table import Cells, VirtualTable

if TYPE_CHECKING:
    from engine.store.leases import LeaseView
    from engine.store.queries import StoreReader
    from engine.store.rows import PaceRow

CLOCK_SECONDS = 1.0
TABLE_FRAME = 3  # lines of a table around its rows
RELEASED_SHOWN = 500  # the newest ones; a long run releases thousands


class LeaseDetails(SpanPane):
    """The sandbox under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="details", classes="pane")
        self.view: LeaseView | None = None
        self.now = 0.0
        self.can_focus = False

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return lease_details(self.view, self.now, os.getpid(), width)


class WhyLeft(SpanPane):
    """Why some sandboxes stand apart, and what to do about them."""

    def __init__(self) -> None:
        super().__init__(id="why")
        self.can_focus = False
        self._left: list[LeaseView] = []

    def write(self, left: list[LeaseView]) -> None:
        """``left`` stand apart."""
        if len(left) != len(self._left):
            self._left = left
            self.refresh(layout=True)
            self.recompose_lines()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.compose_lines(width, 0)))

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return orphan_lines(self._left, width, acts=may_act(self))


class SandboxesScreen(FedScreen):
    """What was left behind on top, what is in use below it, what was released where one asks for it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open run", id="sandboxes.open", tooltip="Open the run of this sandbox"),
        Binding("space", "mark", "Mark", id="sandboxes.mark", tooltip="Mark this one for release, or not"),
        Binding(
            "d",
            "release",
            "Release",
            id="sandboxes.release",
            tooltip="Release the marked ones, or this one; asks first",
        ),
        Binding(
            "c,D",
            "clean_up",
            "Clean up",
            id="sandboxes.clean_up",
            tooltip="Release everything that was left behind; asks first",
        ),
        Binding(
            "a", "released", "Released", id="sandboxes.released", tooltip="Show the released ones, or not"
        ),
        Binding("escape", "back", "Back", id="sandboxes.back", tooltip="Back to where you came from"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._views: list[LeaseView] = []
        self._paces: list[PaceRow] = []
        self._marked: set[str] = set()
        self._with_released = False
        self._loaded = False
        self._now = time.time()
        self._pid = os.getpid()
        self._room: int | None = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        with Vertical(id="body"):
            yield WhyLeft()
            for place in ("left", "leases"):
                yield VirtualTable["LeaseView"](
                    COLUMNS, lambda view: view.lease.name, self._cells, id=place, classes="pane"
                )
            yield LeaseDetails()
        yield KeyBar()

    @property
    def left_table(self) -> VirtualTable[LeaseView]:
        """The orphans."""
        return cast("VirtualTable[LeaseView]", self.query_one("#left", VirtualTable))

    @property
    def table(self) -> VirtualTable[LeaseView]:
        """Everything else."""
        return cast("VirtualTable[LeaseView]", self.query_one("#leases", VirtualTable))

    def on_mount(self) -> None:
        self.query_one(LeaseDetails).border_title = "Details"
        self.table.border_title = "In use"
        self.table.focus()
        self.set_interval(CLOCK_SECONDS, self._tick)
        self._write_top()

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan:
        with_released = self._with_released

        def read(reader: StoreReader) -> tuple[list[LeaseView], list[PaceRow]]:
            from engine.store.leases import OPEN_STATES

            rows = reader.leases(states=OPEN_STATES)
            if with_released:
                rows += reader.released_leases(RELEASED_SHOWN)
            return reader.lease_views(rows, time.time()), reader.paces()

        return read

    def take(self, data: object) -> None:
        self._views, self._paces = cast("tuple[list[LeaseView], list[PaceRow]]", data)
        first, self._loaded = not self._loaded, True
        self._now = time.time()
        self._marked &= {view.lease.name for view in self._views if view.open}
        self._show()
        if first and self.orphans():
            self.left_table.focus()  # what needs a hand comes first

    def _tick(self) -> None:
        """Ages of what is held. Nothing moves where nothing is."""
        if self.is_current and any(view.open for view in self._views):
            self._now = time.time()
            self._show()

    def orphans(self) -> list[LeaseView]:
        """What nobody alive holds."""
        return [view for view in self._views if view.left_behind]

    def _show(self) -> None:
        left = self.orphans()
        others = [view for view in self._views if not view.left_behind]
        for name, on in (("-some-left", bool(left)), ("-only-left", bool(left) and not others)):
            if self.has_class(name) != on:  # a class that changes lays everything out anew
                self.set_class(on, name)
        if self._loaded:
            self.table.set_empty(nothing_held(self._with_released))
        self.query_one(WhyLeft).write(left)
        self._make_room(len(left) if others else None)
        self.left_table.show(left)
        self.table.show(others)
        entitle(self.left_table, f"Left behind ({len(left)})", unisolated_words(left))
        title = "In use and released" if self._with_released else "In use"
        limits = limits_words(others, self._paces)
        entitle(self.table, title, " · ".join(words for words in (limits, unisolated_words(others)) if words))
        self._keep_focus(bool(left), bool(others))
        self._show_details()
        self._write_top()
        self.refresh_bindings()

    def _make_room(self, rows: int | None) -> None:
        """As many lines for the orphans as they need, up to half; None: all there are."""
        if rows != self._room:
            self._room = rows
            self.left_table.styles.height = "1fr" if rows is None else rows + TABLE_FRAME

    def _keep_focus(self, some_left: bool, some_others: bool) -> None:
        """The keys act on the table in focus, so it must be one that is shown; orphans come first."""
        focused = self.focused
        if some_left and (focused is None or (focused is self.table and not some_others)):
            self.left_table.focus()
        elif not some_left and (focused is None or focused is self.left_table):
            self.table.focus()

    def _show_details(self) -> None:
        pane = self.query_one(LeaseDetails)
        pane.view, pane.now = self._selected(), self._now
        pane.recompose_lines()

    def _selected(self) -> LeaseView | None:
        table = self.left_table if self.left_table.has_focus else self.table
        return table.cursor_item or self.left_table.cursor_item

    def _cells(self, view: LeaseView) -> Cells:
        return lease_cells(view, self._now, self._pid, view.lease.name in self._marked)

    def _write_top(self) -> None:
        left, held = len(self.orphans()), sum(view.holder is not None for view in self._views)
        right: list[Span] = []
        if self._marked:
            right.extend(((f"{len(self._marked)} marked", Tone.ACCENT), (" · ", Tone.FAINT)))
        if left:
            right.extend(((f"! {left} left behind", Tone.BAD), (" · ", Tone.FAINT)))
        if self._loaded:
            right.append((f"{held} in use", Tone.GOOD if held else Tone.DIM))
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Sandboxes"], tuple(right))

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self._selected() if self.is_mounted and self._loaded else None
        if action == "open":
            return view is not None and view.run_name is not None
        if action == "mark":
            return view is not None and view.open
        if action == "release":
            return not self.app.cleaning and (bool(self._marked) or (view is not None and view.open))
        if action == "clean_up":
            return not self.app.cleaning and bool(self.orphans())
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        if action in ("release", "clean_up") and self.app.cleaning:
            return "sandboxes are being released already"
        if action == "clean_up":
            return "nothing was left behind"
        if action in ("release", "mark"):
            return (
                "there is nothing to release" if self._selected() is None else "this one is released already"
            )
        return "nothing here knows its run" if action == "open" and self._selected() is not None else None

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        if self._loaded:
            self._show_details()
            self.refresh_bindings()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self.action_open()

    def action_open(self) -> None:
        view = self._selected()
        if view is not None and view.run_name is not None and view.lease.run_id is not None:
            self.app.open_run(view.lease.run_id)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_mark(self) -> None:
        view = self._selected()
        if view is None or not view.open:
            return
        self._marked ^= {view.lease.name}
        (self.left_table if view.left_behind else self.table).action_move(1)
        self._show()

    def action_released(self) -> None:
        self._with_released = not self._with_released
        self.app.poke()

    def action_clean_up(self) -> None:
        self._ask_for(self.orphans())

    def action_release(self) -> None:
        selected = self._selected()
        chosen = [view for view in self._views if view.lease.name in self._marked]
        if not chosen and selected is not None and selected.open:
            chosen = [selected]
        if len(chosen) == 1 and chosen[0].holder is not None:
            self._ask_for_held(chosen[0])
            return
        spared = [view for view in chosen if view.holder is not None]
        note = ""
        if spared:
            note = (
                f"{counted(len(spared), 'sandbox')} among the marked ones stay: living processes hold them. "
                "Release such a one alone, by its name."
            )
        free = [view for view in chosen if view.holder is None]
        if not free:
            self.app.notify(note, title="Not released", severity="warning", markup=False)
            return
        self._ask_for(free, note)

    def _ask_for(self, views: Sequence[LeaseView], note: str = "") -> None:
        names = [view.lease.name for view in views]

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self._marked -= set(names)
                self.app.clean_up(names)

        self.app.push_screen(
            confirm("Release", "sandbox" if len(names) == 1 else "sandboxes", names, note), answered
        )

    def _ask_for_held(self, view: LeaseView) -> None:
        """A sandbox in use goes only by its own name, and after this."""
        name, holder = view.lease.name, view.holder
        who = "a living process" if holder is None else host_words(holder)

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self._marked.discard(name)
                self.app.clean_up([name], force=True)

        self.app.push_screen(
            Ask(
                "This sandbox is in use",
                [
                    f"  {name}",
                    "",
                    f"{who} holds it for run {view.run_name or view.lease.run_id or '–'}. Released now, its attempt "
                    "fails and is tried again in a fresh sandbox.",
                ],
                [
                    Choice("cancel", "Leave it", "escape"),
                    Choice("yes", "Release this one", "y", grave=True),
                ],
            ),
            answered,
        )
