"""Lines as spans of (safe text, tone), and the widgets that paint them line by line.

A pane keeps the lines it shows. Given new ones it repaints only those that differ; of these the terminal gets the cells
that do (``sparing``). That is what keeps a live screen within a slow connection's budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from loops_tui.theme import Palette, Tone
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from textual.binding import BindingType

Span = tuple[str, Tone]
Line = tuple[Span, ...]

BLANK: Line = ()
# Tones that show on blanks too: a ground of their own, or a line under them.
GROUNDED = frozenset({Tone.MATCH, Tone.MATCH_HERE, Tone.TOKEN_LOW})


def plain(text: str, tone: Tone = Tone.PLAIN) -> Line:
    return ((text, tone),)


def text_of(line: Line) -> str:
    return "".join(text for text, _ in line)


def width_of(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same text with as few spans as it takes: neighbours of one tone are one."""
    fewer: list[Span] = []
    for text, tone in spans:
        if fewer and fewer[-1][1] is tone:
            fewer[-1] = (fewer[-1][0] + text, tone)
        else:
            fewer.append((text, tone))
    return fewer


def clip(line: Line, width: int) -> Line:
    """The line in at most ``width`` cells, with an ellipsis where something is missing."""
    if width <= 0:
        return BLANK
    if width_of(line) <= width:
        return line
    kept: list[Span] = []
    room = width - 1
    for text, tone in line:
        cells = cell_len(text)
        if cells <= room:
            kept.append((text, tone))
            room -= cells
            continue
        kept.append((set_cell_size(text, room) + "…", tone))
        return tuple(kept)
    return tuple(kept)


def pad(line: Line, width: int, right: bool = False) -> Line:
    """The line in exactly ``width`` cells."""
    line = clip(line, width)
    gap = width - width_of(line)
    if gap <= 0:
        return line
    filler: Span = (" " * gap, Tone.PLAIN)
    return (filler, *line) if right else (*line, filler)


def spread(left: Line, right: Line, width: int) -> Line:
    """``left`` at the left edge and ``right`` at the right one; ``left`` gives way."""
    right = clip(right, width)
    room = width - width_of(right)
    if room < 2:
        return pad(left, width)
    return (*pad(left, room - 1), (" ", Tone.PLAIN), *right) if right else pad(left, width)


def in_room(parts: Iterable[Line], width: int, gap: Line = ()) -> Line:
    """As many of the parts, one after the other, as fit ``width`` cells: each whole or not at all."""
    line: Line = ()
    for part in parts:
        longer: Line = (*line, *gap, *part) if line else part
        if width_of(longer) <= width:
            line = longer
    return line


def fact(label: str, value: str, width: int, tone: Tone = Tone.PLAIN, change: Line = ()) -> Line:
    """A figure under its name: the name at the left edge, the figure at the right one."""
    return spread(plain(label, Tone.DIM), ((value, tone), *change), width)


def strip_of(line: Line, width: int, palette: Palette, base: Style, over: Style | None = None) -> Strip:
    """The line as a strip of exactly ``width`` cells; ``over`` is laid over every span (a cursor)."""
    segments: list[Segment] = []
    run, run_tone, used = "", Tone.PLAIN, 0

    def end_run() -> None:
        if run:
            style = base + palette[run_tone]
            segments.append(Segment(run, style + over if over is not None else style))

    for written, tone in clip(line, width):
        # A defect elsewhere must not become a hole here.
        text = written if written.isprintable() else safe(written, len(written) + 1)
        used += cell_len(text)
        # Every change of style costs some forty bytes on the wire; a gap looks the same in either of its neighbours'.
        if tone is run_tone or (tone not in GROUNDED and run_tone not in GROUNDED and text.isspace()):
            run += text
            continue
        end_run()
        run, run_tone = text, tone
    gap = " " * (width - used)
    if gap and run_tone not in GROUNDED:
        run, gap = run + gap, ""
    end_run()
    if gap:
        segments.append(Segment(gap, base + over if over is not None else base))
    return Strip(segments, max(used, width))


def palette_of(widget: Widget) -> Palette:
    """The palette of the app's theme: every app of this package has one."""
    return cast("Palette", widget.app.palette)  # pyright: ignore[reportAttributeAccessIssue]


def entitle(widget: Widget, title: str, subtitle: str | None = None) -> None:
    """Set a widget's titles, as plain text, and repaint the edges that they are in.

    Textual's own setter repaints the whole widget, even to what it was, and reads markup.
    """
    _set_title(widget, "_border_title", title, top=True)
    if subtitle is not None:
        _set_title(widget, "_border_subtitle", subtitle, top=False)


def _set_title(widget: Widget, name: str, title: str, *, top: bool) -> None:
    before: Content | None = getattr(widget, name, None)
    if (before.plain if before is not None else "") == title:
        return
    setattr(widget, name, Content(title) if title else None)
    offset, size = widget.content_offset, widget.outer_size
    widget.refresh(Region(-offset.x, -offset.y if top else size.height - 1 - offset.y, size.width, 1))


class SpanPane(Widget):
    """A fixed pane of lines. It does not scroll: give it what fits."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def compose_lines(self, width: int, height: int) -> Iterable[Line] | None:
        """The pane's lines at this size, or None where they were given with :meth:`show`."""
        return None

    def show(self, lines: Iterable[Line]) -> None:
        """Show these lines, repainting those that differ."""
        new = list(lines)
        old, self._lines = self._lines, new
        if not self.is_mounted:
            return
        for y in range(min(self.size.height, max(len(old), len(new)))):
            before = old[y] if y < len(old) else BLANK
            after = new[y] if y < len(new) else BLANK
            if before != after:
                self.refresh(Region(0, y, self.size.width, 1))

    def recompose_lines(self) -> None:
        """Ask :meth:`compose_lines` again (new data, new size)."""
        lines = self.compose_lines(self.size.width, self.size.height)
        if lines is not None:
            self.show(lines)

    def on_resize(self) -> None:
        self.recompose_lines()

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else BLANK
        return strip_of(line, self.size.width, palette_of(self), self.rich_style)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self._lines))


class LineView(ScrollView):
    """A scrolling widget painted line by line, whose height may change many times a second.

    Textual lays the whole screen out anew when ``virtual_size`` changes. Here nothing but the scroll bar depends on
    it (which is always there), so it is told alone.
    """

    DEFAULT_CSS = "LineView { overflow-y: scroll; overflow-x: hidden; }"

    def set_height(self, lines: int) -> None:
        """There are now so many lines."""
        size = Size(self.scrollable_content_region.width, lines)
        if size == self.virtual_size:
            return
        self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]  # a descriptor, seen from the class
        self.vertical_scrollbar.window_virtual_size = lines
        if self.scroll_y > self.max_scroll_y:
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)


class SpanView(LineView, can_focus=True):
    """A scrolling pane of lines, painted only where it is looked at."""

    ALLOW_SELECT: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: Sequence[Line] = ()
        self.follow = False  # stay at the end while it grows
        self._at_end = True
        self._settled: tuple[int, int] | None = None  # (height, lines) for which the end was last looked for

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    def show(self, lines: Sequence[Line], *, keep: bool = True) -> None:
        """Show these lines. ``keep`` leaves the view where it is, unless it follows the end."""
        old, self._lines = self._lines, lines
        self.set_height(len(lines))
        if self.follow and self._at_end:
            self._to_end()
        elif not keep:
            self.scroll_home(animate=False, immediate=True)
        top, width = self.scroll_offset.y, self.scrollable_content_region.width
        for y in range(self.size.height):
            index = top + y
            before = old[index] if index < len(old) else BLANK
            after = lines[index] if index < len(lines) else BLANK
            if before != after:
                self.refresh(Region(0, y, width, 1))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value >= self.max_scroll_y:
            self._at_end = True
        elif self._settled == (self.size.height, len(self._lines)):
            self._at_end = False  # a person scrolled: neither the size nor the text has changed

    def on_resize(self) -> None:
        if self.follow and self._at_end:
            self._to_end()

    def _to_end(self) -> None:
        """Go to the end once the layout knows where that is."""
        self._settled = None
        self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)
        self._settled = (self.size.height, len(self._lines))

    def decorate(self, index: int, line: Line) -> Line:
        """The line as shown (a search marks its matches here)."""
        return line

    def render_line(self, y: int) -> Strip:
        index = self.scroll_offset.y + y
        line = self.decorate(index, self._lines[index]) if index < len(self._lines) else BLANK
        return strip_of(line, self.scrollable_content_region.width, palette_of(self), self.rich_style)
