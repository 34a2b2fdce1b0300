"""A table that paints only the rows in view, and of those only the ones that changed.

Columns have fixed widths, chosen from the width at hand: the least important ones give way first. The cursor belongs
to a row's key, not to its place, so rows may come, go and be sorted anew under it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from loops_tui.theme import Tone
from loops_tui.widgets.spans import BLANK, Line, LineView, pad, palette_of, plain, strip_of

GAP = 2
TURN = 3  # what part of a page is turned where the last row is followed


class Fluid(Protocol):
    """A cell that is written for the width it gets (a spark, a bar). Equal ones look the same."""

    def line(self, width: int) -> Line: ...


Cells = tuple[Line | Fluid, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` is the least it needs; ``flex`` shares what is left over, up to ``most``. Columns of the highest
    ``drop`` go first where the width does not suffice; 0 never goes."""

    key: str
    title: str
    width: int
    flex: int = 0
    most: int = 999
    right: bool = False
    drop: int = 0


def fit(columns: Sequence[Column], room: int) -> list[tuple[int, Column, int]]:
    """Which columns are shown in ``room`` cells: (index, column, width)."""
    chosen = list(enumerate(columns))
    while len(chosen) > 1:
        need = sum(column.width for _, column in chosen) + GAP * (len(chosen) - 1)
        if need <= room:
            break
        worst = max(chosen, key=lambda item: (item[1].drop, item[0]))
        if worst[1].drop == 0:
            break
        chosen.remove(worst)
    spare = max(0, room - sum(column.width for _, column in chosen) - GAP * (len(chosen) - 1))
    widths = {index: column.width for index, column in chosen}
    growing = [(index, column) for index, column in chosen if column.flex]
    while spare > 0 and growing:
        total = sum(column.flex for _, column in growing)
        given = 0
        for index, column in list(growing):
            share = min(max(1, spare * column.flex // total), column.most - widths[index], spare - given)
            widths[index] += share
            given += share
            if widths[index] >= column.most:
                growing.remove((index, column))
        if given == 0:
            break
        spare -= given
    return [(index, column, widths[index]) for index, column in chosen]


class VirtualTable[ItemT](LineView, can_focus=True):
    """Rows are items; ``key`` names one for good, ``cells`` writes it."""

    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up", tooltip="The row above"),
        Binding("down,j", "move(1)", "Down", show=False, id="table.down", tooltip="The row below"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="table.page_up", tooltip="A page up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="table.page_down", tooltip="A page down"),
        Binding("home,g", "edge(-1)", "First", show=False, id="table.first", tooltip="The first row"),
        Binding("end,G", "edge(1)", "Last", show=False, id="table.last", tooltip="The last row"),
        Binding("enter", "open", "Open", id="table.open", tooltip="Open this row"),
    ]

    class Moved(Message):
        """The cursor is on another row (None: there is no row)."""

        def __init__(self, table: VirtualTable, key: str | None, by_hand: bool) -> None:
            super().__init__()
            self.table = table
            self.key = key
            self.by_hand = by_hand

        @property
        def control(self) -> VirtualTable:
            return self.table

    class Opened(Message):
        """Enter, or a second click."""

        def __init__(self, table: VirtualTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> VirtualTable:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        key: Callable[[ItemT], str],
        cells: Callable[[ItemT], Cells],
        *,
        empty: Sequence[Line] = (),
        tail: bool = False,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._key = key
        self._cells = cells
        self._items: Sequence[ItemT] = ()
        self._places: dict[str, int] = {}
        self._fit: list[tuple[int, Column, int]] = []
        self._fit_width = -1
        self._painted: dict[int, tuple[Cells | None, bool]] = {}
        self._laid_for: Size | None = None
        self.empty = list(empty)
        self.cursor_key: str | None = None
        self.touched = False  # whether a person has moved the cursor: until then it follows
        self._tail = tail  # what it follows: the last row, or the first one

    # -- content -----------------------------------------------------------------------------------------------

    @property
    def items(self) -> Sequence[ItemT]:
        return self._items

    @property
    def cursor_item(self) -> ItemT | None:
        place = self._place()
        return None if place is None else self._items[place]

    def show(self, items: Sequence[ItemT]) -> None:
        """Show these rows, keeping the cursor on its row wherever that has gone."""
        old_place = self._place()
        emptiness_changed = (not items) != (not self._items)
        self._items = items
        self._places = {self._key(item): place for place, item in enumerate(items)}
        before = self.cursor_key
        if not items:
            self.cursor_key = None
        elif not self.touched:
            self.cursor_key = self._key(items[-1 if self._tail else 0])
        elif self.cursor_key not in self._places:
            self.cursor_key = self._key(items[min(old_place or 0, len(items) - 1)])
        self._measure()
        place = self._place()
        if self._tail and not self.touched:
            self._follow_tail()
        elif place is not None and old_place is not None and place != old_place and self.scroll_offset.y:
            self.scroll_to(y=max(0, self.scroll_offset.y + place - old_place), animate=False, immediate=True)
        if emptiness_changed:
            self.refresh()  # rows past the last item are the same before and after, but what is said there is not
        else:
            self._repaint_changed()
        if self.cursor_key != before:
            self.post_message(self.Moved(self, self.cursor_key, by_hand=False))

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Show these columns from now on; cells are written for them from the next ``show`` on."""
        columns = tuple(columns)
        if columns != self._columns:
            self._columns = columns
            self._fit_width = -1
            self._painted.clear()
            self.refresh()

    def _follow_tail(self) -> None:
        """Keep the last row in view. Where it falls out, a part of the page is turned at once: rows then stand still
        for as long as that takes to fill, while a view that scrolls with every row repaints every cell each time."""
        last, top = len(self._items) - 1, self.scroll_offset.y
        if not top <= last < top + self._rows_in_view():
            self._turn_page()

    def _turn_page(self) -> None:
        rows = self._rows_in_view()
        room = rows // TURN if len(self._items) > rows else 0
        self.scroll_to(y=max(0, len(self._items) - rows + room), animate=False, immediate=True)

    def set_empty(self, lines: Sequence[Line]) -> None:
        """What to say where there are no rows."""
        if list(lines) != self.empty:
            self.empty = list(lines)
            if not self._items:
                self.refresh()

    def move_to(self, key: str) -> None:
        """Put the cursor on a row by its key, as a person's choice."""
        place = self._places.get(key)
        if place is not None:
            self._go(place)

    def _place(self) -> int | None:
        return None if self.cursor_key is None else self._places.get(self.cursor_key)

    def _rows_in_view(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def _measure(self) -> None:
        # Where a part of a page is turned there must be room below the last row.
        rows = self._rows_in_view()
        slack = rows // TURN if self._tail and len(self._items) > rows else 0
        self.set_height(len(self._items) + 1 + slack)

    def _layout_columns(self) -> list[tuple[int, Column, int]]:
        width = self.scrollable_content_region.width
        if width != self._fit_width:
            self._fit = fit(self._columns, width - 3)  # a marker's two cells before, one after
            self._fit_width = width
        return self._fit

    # -- painting ----------------------------------------------------------------------------------------------

    def _repaint_changed(self) -> None:
        if not self.is_mounted:
            return
        top = self.scroll_offset.y
        for y in range(1, self.size.height):
            before, after = self._painted.get(y), self._state_of(top + y - 1)
            if before != after:
                self.refresh(Region(0, y, self.size.width, 1))

    def _state_of(self, place: int) -> tuple[Cells | None, bool]:
        if place >= len(self._items):
            return (None, False)
        item = self._items[place]
        cells = self._cells(item)
        shown = tuple(cells[index] if index < len(cells) else BLANK for index, _, _ in self._layout_columns())
        return (shown, self._key(item) == self.cursor_key)

    def render_line(self, y: int) -> Strip:
        palette = palette_of(self)
        width = self.scrollable_content_region.width
        base = self.rich_style
        if y == 0:
            return strip_of(self._header(), width, palette, base)
        place = self.scroll_offset.y + y - 1
        state = self._state_of(place)
        self._painted[y] = state
        cells, under_cursor = state
        if cells is None:
            text = self.empty[y - 2] if not self._items and 2 <= y < len(self.empty) + 2 else BLANK
            return strip_of((("  ", Tone.PLAIN), *text), width, palette, base)
        over: Style | None = None
        if under_cursor:
            over = palette.cursor if self.has_focus else palette.cursor_blurred
        return strip_of(self._row(cells, under_cursor), width, palette, base, over)

    def _header(self) -> Line:
        spans: list = [("  ", Tone.PLAIN)]
        for position, (_, column, width) in enumerate(self._layout_columns()):
            if position:
                spans.append((" " * GAP, Tone.PLAIN))
            spans.extend(pad(plain(column.title, Tone.DIM), width, column.right))
        return tuple(spans)

    def _row(self, cells: Cells, under_cursor: bool) -> Line:
        spans: list = [("▌ " if under_cursor else "  ", Tone.ACCENT)]
        for position, (_, column, width) in enumerate(self._layout_columns()):
            if position:
                spans.append((" " * GAP, Tone.PLAIN))
            cell = cells[position]
            line = cell if isinstance(cell, tuple) else cell.line(width)
            spans.extend(pad(line, width, column.right))
        return tuple(spans)

    # -- moving ------------------------------------------------------------------------------------------------

    def _go(self, place: int, by_hand: bool = True) -> None:
        if not self._items:
            return
        place = max(0, min(len(self._items) - 1, place))
        key = self._key(self._items[place])
        self.touched = self.touched or by_hand
        top = self.scroll_offset.y
        rows = self._rows_in_view()
        if place < top:
            self.scroll_to(y=place, animate=False, immediate=True)
        elif place >= top + rows:
            self.scroll_to(y=place - rows + 1, animate=False, immediate=True)
        if key == self.cursor_key:
            return
        self.cursor_key = key
        self._repaint_changed()
        self.post_message(self.Moved(self, key, by_hand))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self._items) if action == "open" else True

    def action_move(self, by: int) -> None:
        place = self._place()
        self._go(0 if place is None else place + by)

    def action_page(self, by: int) -> None:
        rows = max(1, self.scrollable_content_region.height - 2)
        self._go((self._place() or 0) + by * rows)

    def action_edge(self, end: int) -> None:
        self._go(0 if end < 0 else len(self._items) - 1)

    def action_open(self) -> None:
        if self.cursor_key is not None and self.cursor_key in self._places:
            self.post_message(self.Opened(self, self.cursor_key))

    def on_click(self, event: events.Click) -> None:
        spot = event.get_content_offset(self)  # a border is part of the widget, not of the table
        if spot is None or spot.y < 1:
            return
        place = self.scroll_offset.y + spot.y - 1
        if place >= len(self._items):
            return
        again = self._place() == place
        self._go(place)
        if again or event.chain > 1:
            self.action_open()

    def on_resize(self, event: events.Resize) -> None:
        if event.size == self._laid_for:
            return
        self._laid_for = event.size
        self._painted.clear()
        self._measure()
        place = self._place()
        if self._tail and not self.touched:
            self._turn_page()  # where it comes to rest is then the same, whatever the sizes on the way were
        elif place is not None:
            self._go(place, by_hand=False)
        self.refresh()

    def on_focus(self) -> None:
        self._refresh_cursor()

    def on_blur(self) -> None:
        self._refresh_cursor()

    def _refresh_cursor(self) -> None:
        place = self._place()
        if place is not None:
            self.refresh(Region(0, place - self.scroll_offset.y + 1, self.size.width, 1))
