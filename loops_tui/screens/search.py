"""Full-text search over the transcripts of one run, or of the whole project."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from engine.store.search import SearchHit
from loops_tui.feed import ReadPlan
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.search_text import (
    LIMIT,
    Found,
    columns_for,
    details,
    empty_lines,
    hit_cells,
    hit_key,
    said,
    texts_to_find,
)
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, SpanPane, entitle
from loops_tui.widgets.text_line import TextLine
from loops_tui.widgets.virtual_table import Cells, VirtualTable

if TYPE_CHECKING:
    from engine.store.queries import StoreReader


class QueryLine(TextLine):
    """The words; down and enter go to the hits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter,down",
            "hits",
            "To the hits",
            key_display="↵",
            id="query.hits",
            tooltip="Go down to the hits",
        ),
        Binding("escape", "screen.back", "Back", id="query.back", tooltip="Back to where you came from"),
    ]

    class Leaving(Message):
        """The hits are to have the focus."""

    def __init__(self) -> None:
        super().__init__(placeholder="words in transcripts", id="query", compact=True, select_on_focus=False)
        self.found_any = False  # hits to go to

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.found_any if action == "hits" else super().check_action(action, parameters)

    def action_hits(self) -> None:
        self.post_message(self.Leaving())


class HitDetails(SpanPane):
    """The hit under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="details", classes="pane")
        self.found: Found | None = None
        self.hit: SearchHit | None = None

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return details(self.found, self.hit, width)


class SearchScreen(FedScreen):
    """Searches as one types. A result stands still while the store goes on changing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="search.open", tooltip="Open the attempt at what was found"),
        Binding("slash", "words", "Words", key_display="/", id="search.words", tooltip="Change the words"),
        Binding("ctrl+t", "scope", "This run / project", id="search.scope",
                tooltip="Search this run only, or the whole project"),
        Binding("escape", "back", "Back", id="search.back", tooltip="Back to where you came from"),
    ]  # fmt: skip

    def __init__(self, run_id: str | None = None) -> None:
        """``run_id``: the run one comes from, to be searched alone at first."""
        super().__init__()
        self._run_id = run_id
        self._within = run_id is not None
        self._text = ""
        self.found: Found | None = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield QueryLine()
        with Vertical(id="body"):
            yield VirtualTable[SearchHit](
                columns_for(self._scope), hit_key, self._cells, id="hits", classes="pane"
            )
            yield HitDetails()
        yield KeyBar()

    @property
    def _scope(self) -> str | None:
        """The run that is searched; None: all of them."""
        return self._run_id if self._within else None

    @property
    def table(self) -> VirtualTable[SearchHit]:
        return cast("VirtualTable[SearchHit]", self.query_one("#hits", VirtualTable))

    def on_mount(self) -> None:
        self.query_one(HitDetails).border_title = "Found"
        self.query_one(QueryLine).focus()
        self._show()

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        wanted, here = (self._text, self._scope), self._run_id
        if self.found is not None and (self.found.text, self.found.run_id) == wanted:
            return None

        def read(reader: StoreReader) -> Found:
            text, run_id = wanted
            started = time.perf_counter()
            hits = reader.search(run_id, text, LIMIT) if text.strip() else []
            took = (time.perf_counter() - started) * 1000
            runs = reader.runs_by_id({hit.run_id for hit in hits} | ({here} if here is not None else set()))
            return Found(text, run_id, hits, {key: run.name for key, run in runs.items()}, took)

        return read

    def take(self, data: object) -> None:
        found = cast("Found", data)
        if (found.text, found.run_id) == (self._text, self._scope):
            self.found = found
            self._show()

    def _show(self) -> None:
        found, table = self.found, self.table
        name = "" if self._run_id is None or found is None else found.runs.get(self._run_id, self._run_id)
        told = said(found) if found is not None and found.text.strip() else ""
        table.set_columns(columns_for(self._scope))
        table.set_empty(empty_lines(found, f"run {safe(name, 40)}" if self._within else "this project"))
        table.touched = table.touched and bool(found and found.hits)
        table.show([] if found is None else found.hits)
        entitle(table, "In this run" if self._within else "In the whole project", told)
        self._show_details()
        path = [self.app.project_dir.name or "/", *([name] if self._within and name else []), "Search"]
        self.query_one(TopLine).write(path)
        self.query_one(QueryLine).found_any = bool(table.items)
        self.refresh_bindings()

    def _show_details(self) -> None:
        pane = self.query_one(HitDetails)
        pane.found, pane.hit = self.found, self.table.cursor_item
        pane.recompose_lines()

    def _cells(self, hit: SearchHit) -> Cells:
        return hit_cells(hit, {} if self.found is None else self.found.runs, columns_for(self._scope))

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "scope":
            return self._run_id is not None
        if action == "open":
            return self.is_mounted and self.table.cursor_item is not None
        if action == "words":
            return self.is_mounted and self.table.has_focus
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._text = event.value
        self.app.poke()

    def on_query_line_leaving(self, _: QueryLine.Leaving) -> None:
        self.table.focus()

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self._open()

    def action_open(self) -> None:
        self._open()

    def _open(self) -> None:
        from loops_tui.screens.transcript import TranscriptScreen

        hit, found = self.table.cursor_item, self.found
        if hit is None or found is None:
            return
        name = found.runs.get(hit.run_id, hit.run_id)
        screen = TranscriptScreen(
            hit.run_id, name, hit.group_id, hit.attempt, find=texts_to_find(found.text, hit)
        )
        self.app.push_screen(screen)

    def action_words(self) -> None:
        self.query_one(QueryLine).focus()

    def action_scope(self) -> None:
        self._within = not self._within and self._run_id is not None
        self._show()
        self.app.poke()

    def action_back(self) -> None:
        self.dismiss(None)
