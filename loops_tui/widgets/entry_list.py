"""A scrolling list of remarks, each of one or more lines; those that lead somewhere can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from loops_tui.theme import Tone
from loops_tui.widgets.spans import BLANK, Line, Span, SpanView, palette_of, strip_of
from loops_tui.widgets.wrapping import wrap


@dataclass(frozen=True, slots=True)
class Entry:
    """A remark: a mark in front, a head that does not wrap, then safe text that does.

    ``target`` is what choosing it leads to; None: it cannot be chosen.
    """

    text: str
    tone: Tone = Tone.PLAIN
    mark: Span = ("", Tone.PLAIN)
    head: Span = ("", Tone.PLAIN)
    more: tuple[Span, ...] = ()  # further paragraphs below it
    target: object | None = None


def entry_lines(entry: Entry, width: int) -> list[Line]:
    """An entry in lines of at most ``width`` cells."""
    indent = " " * len(entry.mark[0])
    room = max(8, width - len(indent))
    lines: list[Line] = []
    pieces = list(wrap(f"{entry.head[0]}{entry.text}", room))
    for place, piece in enumerate(pieces):
        lead: Span = entry.mark if place == 0 else (indent, Tone.PLAIN)
        head = entry.head[0]
        if place == 0 and head and piece.startswith(head):
            lines.append((lead, entry.head, (piece[len(head) :], entry.tone)))
        else:
            lines.append((lead, (piece, entry.tone)))
    for text, tone in entry.more:
        lines += [((indent, Tone.PLAIN), (piece, tone)) for piece in wrap(text, room)]
    return lines


class EntryList(SpanView):
    """Remarks; up and down go from one that leads somewhere to the next, and scroll where there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", "Up", show=False, id="list.up", tooltip="The remark above"),
        Binding("down,j", "step(1)", "Down", show=False, id="list.down", tooltip="The remark below"),
        Binding("home,g", "edge(-1)", "First", show=False, id="list.first", tooltip="The beginning"),
        Binding("end,G", "edge(1)", "Last", show=False, id="list.last", tooltip="The end"),
        Binding("enter", "choose", "Go there", id="list.choose", tooltip="Go to what this remark is about"),
    ]

    class Chosen(Message):
        """A remark that leads somewhere was chosen."""

        def __init__(self, entries: EntryList, target: object) -> None:
            super().__init__()
            self.entries = entries
            self.target = target

        @property
        def control(self) -> EntryList:
            return self.entries

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._entries: Sequence[Entry] = ()
        self._begins: list[int] = []  # the first line of each entry
        self._width = 0
        self._chosen: int | None = None  # its place among the entries

    @property
    def entries(self) -> Sequence[Entry]:
        return self._entries

    def write(self, entries: Sequence[Entry], *, keep: bool = True) -> None:
        """Show these remarks. ``keep``: stay where the view and the choice are."""
        if list(entries) == list(self._entries) and keep:
            return
        before = self._entries[self._chosen] if self._chosen is not None else None
        self._entries = list(entries)
        same = next((place for place, entry in enumerate(entries) if keep and entry == before), None)
        first = next((place for place, entry in enumerate(entries) if entry.target is not None), None)
        self._chosen = same if same is not None else first
        self._lay_out(keep)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The height that shows all of it, for a list that is as high as it must be."""
        room = width - self.styles.scrollbar_size_vertical
        return max(1, sum(len(entry_lines(entry, room)) for entry in self._entries))

    def _lay_out(self, keep: bool = True) -> None:
        before = len(self.lines)
        self._width = self.scrollable_content_region.width
        lines: list[Line] = []
        self._begins = []
        for entry in self._entries:
            self._begins.append(len(lines))
            lines += entry_lines(entry, self._width) if self._width else [BLANK]
        self.show(lines, keep=keep)
        height = self.styles.height
        self.refresh(layout=height is not None and height.is_auto and len(lines) != before)

    def on_resize(self) -> None:
        super().on_resize()
        if self.scrollable_content_region.width != self._width:
            self._lay_out()

    def _span(self, place: int) -> tuple[int, int]:
        """The first line of an entry and the one after its last."""
        end = self._begins[place + 1] if place + 1 < len(self._begins) else len(self.lines)
        return self._begins[place], end

    def render_line(self, y: int) -> Strip:
        index = self.scroll_offset.y + y
        line = self.lines[index] if index < len(self.lines) else BLANK
        palette = palette_of(self)
        over: Style | None = None
        if self._chosen is not None:
            begin, end = self._span(self._chosen)
            if begin <= index < end:
                over = palette.cursor if self.has_focus else None
        return strip_of(line, self.scrollable_content_region.width, palette, self.rich_style, over)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._chosen is not None if action == "choose" else True

    def action_step(self, by: int) -> None:
        start = self._chosen
        places = (
            range(start + by, len(self._entries) if by > 0 else -1, by) if start is not None else range(0)
        )
        following = next((place for place in places if self._entries[place].target is not None), None)
        height = max(1, self.size.height)
        if following is None:
            self.scroll_relative(y=by, animate=False)
            return
        begin, end = self._span(following)
        top = self.scroll_offset.y
        if begin >= top + 2 * height or end < top - height:
            self.scroll_relative(y=by * (height // 2 or 1), animate=False)
            return
        self._choose(following)
        if begin < top:
            self.scroll_to(y=begin, animate=False, immediate=True)
        elif end > top + height:
            self.scroll_to(y=min(begin, end - height), animate=False, immediate=True)

    def action_edge(self, end: int) -> None:
        places = [place for place, entry in enumerate(self._entries) if entry.target is not None]
        if places:
            self._choose(places[0] if end < 0 else places[-1])
        self.scroll_to(y=0 if end < 0 else self.max_scroll_y, animate=False, immediate=True)

    def _choose(self, place: int) -> None:
        for changed in (self._chosen, place):
            if changed is not None:
                begin, end = self._span(changed)
                self.refresh(Region(0, begin - self.scroll_offset.y, self.size.width, end - begin))
        self._chosen = place

    def action_choose(self) -> None:
        if self._chosen is not None:
            self.post_message(self.Chosen(self, self._entries[self._chosen].target))

    def on_click(self, event: events.Click) -> None:
        spot = event.get_content_offset(self)  # a border is part of the widget, not of the list
        if spot is None:
            return
        index = self.scroll_offset.y + spot.y
        for place, entry in enumerate(self._entries):
            begin, end = self._span(place)
            if begin <= index < end and entry.target is not None:
                self._choose(place)
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()
