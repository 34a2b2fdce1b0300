"""A scrolling pane of lines in which a text can be found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, SpanView, text_of


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
        self.matches: list[int] = []  # lines that match
        self._here = 0
        self._pointed: int | None = None

    def point_at(self, line: int | None) -> None:
        """Mark a line (the turn in hand)."""
        if line != self._pointed:
            before, self._pointed = self._pointed, line
            for place in (before, line):
                if place is not None:
                    self.refresh_line(place)

    def show(self, lines: Sequence[Line], *, keep: bool = True) -> None:
        super().show(lines, keep=keep)
        if self.needle:
            self._match()

    def find(self, needle: str) -> None:
        """Search as one types: the first match at or below the top of the view is the current one."""
        self.needle = needle.casefold()
        self._match()
        if self.matches:
            self._here = bisect_left(self.matches, self.scroll_offset.y) % len(self.matches)
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
        return f"match {self._here + 1} of {len(self.matches)}" if self.matches else "not found"

    def _match(self) -> None:
        needle = self.needle
        self.matches = (
            [place for place, line in enumerate(self.lines) if needle in text_of(line).casefold()]
            if needle
            else []
        )
        self._here = min(self._here, max(0, len(self.matches) - 1))

    def _reveal(self) -> None:
        line = self.matches[self._here]
        top, height = self.scroll_offset.y, self.size.height
        if not top <= line < top + height:
            self.scroll_to(y=max(0, line - height // 3), animate=False)

    def decorate(self, index: int, line: Line) -> Line:
        if index == self._pointed and line:
            # The heading begins with a rule: its first two cells carry the mark.
            line = (("▌─", Tone.ACCENT), (line[0][0][2:], line[0][1]), *line[1:])
        if not self.needle or not line:
            return line
        here = bool(self.matches) and self.matches[self._here] == index
        return _marked(line, self.needle, Tone.MATCH_HERE if here else Tone.MATCH)


def _marked(line: Line, needle: str, tone: Tone) -> Line:
    """The line with every occurrence of ``needle`` (casefolded) in another tone."""
    text = text_of(line)
    folded = text.casefold()
    if len(folded) != len(text) or needle not in folded:
        # Folding changed the length (ß, ligatures): mark the whole line rather than the wrong part of it.
        return ((text, tone),) if needle in folded else line
    marks = [False] * len(text)
    start = folded.find(needle)
    while start >= 0:
        marks[start : start + len(needle)] = [True] * len(needle)
        start = folded.find(needle, start + len(needle))
    spans: list[Span] = []
    place = 0
    for part, own in line:
        run = ""
        for char in part:
            if run and marks[place] != marks[place - 1]:
                spans.append((run, tone if marks[place - 1] else own))
                run = ""
            run += char
            place += 1
        if run:
            spans.append((run, tone if marks[place - 1] else own))
    return tuple(spans)
