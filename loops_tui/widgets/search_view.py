"""A scrolling pane of lines in which a text can be found, also where it runs over the end of a line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from loops_tui.theme import Tone
from loops_tui.widgets.line_search import LineSearch, Part, marked
from loops_tui.widgets.spans import Line, SpanView


class SearchView(SpanView):
    """Matches are marked where they are looked at; one of them is the current one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Up", show=False, id="view.up", tooltip="A line up"),
        Binding("down,j", "scroll_down", "Down", show=False, id="view.down", tooltip="A line down"),
        Binding("pageup,b", "page_up", "Page up", show=False, id="view.page_up", tooltip="A page up"),
        Binding(
            "pagedown,space", "page_down", "Page down", show=False, id="view.page_down", tooltip="A page down"
        ),
        Binding("home,g", "scroll_home", "Top", show=False, id="view.home", tooltip="The beginning"),
        Binding("end,G", "scroll_end", "End", show=False, id="view.end", tooltip="The end"),
    ]

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.needle = ""
        self.matches: list[tuple[Part, ...]] = []  # each in its parts, one a line
        self._more = False  # whether there are more than are kept
        self._at: dict[int, list[tuple[Part, int]]] = {}  # by line: parts, and which match they belong to
        self._search: LineSearch | None = None  # made when something is first looked for
        self._here = 0
        self._pointed: int | None = None

    def point_at(self, line: int | None) -> None:
        """Mark a line (the turn in hand)."""
        if line != self._pointed:
            before, self._pointed = self._pointed, line
            for place in (before, line):
                if place is not None:
                    self.refresh_line(place)

    def show(self, lines: Sequence[Line], *, keep: bool = True, search: LineSearch | None = None) -> None:
        """``search``: over these lines, where it was made already (for a long text that takes a moment)."""
        if lines is not self.lines:
            self._search = search
        super().show(lines, keep=keep)
        if self.needle:
            self._match()

    def find(self, needle: str) -> None:
        """Search as one types: the first match at or below the top of the view is the current one."""
        self.needle = needle
        self._match()
        if self.matches:
            lines = [match[0].line for match in self.matches]
            self._here = bisect_left(lines, self.scroll_offset.y) % len(self.matches)
            self._reveal()
        self.refresh()

    def step_match(self, by: int) -> None:
        if self.matches:
            self._here = (self._here + by) % len(self.matches)
            self._reveal()
            self.refresh()

    def match_words(self) -> str:
        if not self.needle:
            return ""
        if not self.matches:
            return "not found"
        return f"match {self._here + 1:,} of {len(self.matches):,}{' or more' if self._more else ''}"

    def _match(self) -> None:
        self.matches, self._at, self._more = [], {}, False
        if self.needle:
            if self._search is None:
                self._search = LineSearch(self.lines)
            self.matches, self._more = self._search.find(self.needle)
            for place, match in enumerate(self.matches):
                for part in match:
                    self._at.setdefault(part.line, []).append((part, place))
        self._here = min(self._here, max(0, len(self.matches) - 1))

    def _reveal(self) -> None:
        line = self.matches[self._here][0].line
        top, height = self.scroll_offset.y, self.size.height
        if not top <= line < top + height:
            self.scroll_to(y=max(0, line - height // 3), animate=False)

    def decorate(self, index: int, line: Line) -> Line:
        if index == self._pointed and line:
            # The heading begins with a rule: its first two cells carry the mark.
            line = (("▌─", Tone.ACCENT), (line[0][0][2:], line[0][1]), *line[1:])
        found = self._at.get(index)
        return marked(line, found, self._here) if found else line
