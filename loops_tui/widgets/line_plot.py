"""Line plots in braille dots: two columns and four rows of dots to a cell.

Own code rather than a plotting package: it draws in the theme's tones, sends few bytes (a new point changes the few
cells that it is in), and costs nothing to import before the first paint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, clip, joined, plain

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
CURSOR = "┊"

type Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Series:
    """(x, y) points, x rising, joined by a line; with a ``mark`` each is that one character instead."""

    points: Points
    tone: Tone = Tone.GOOD
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What a plot's area stands for: ``columns`` × ``rows`` cells from (x_low, low) to (x_high, high)."""

    columns: int
    rows: int
    x_low: float
    x_high: float
    low: float
    high: float

    def dot(self, x: float, y: float) -> tuple[int, int]:
        """The dot (column, row) of a point, from the upper left."""
        wide, tall = self.columns * 2 - 1, self.rows * 4 - 1
        across = round((x - self.x_low) / (self.x_high - self.x_low) * wide)
        down = round((1 - (y - self.low) / (self.high - self.low)) * tall)
        return max(0, min(wide, across)), max(0, min(tall, down))


def nice_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Bounds of the vertical axis: 0..1 for values that live there, otherwise the range with a little air."""
    low, high = min(values), max(values)
    if low == high == 0 or (low >= 0.0 and 0.05 <= high <= 1.0):
        return 0.0, 1.0
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return low - pad, high + pad
    step = 10 ** math.floor(math.log10(high - low)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def nice_end(last: float, end: float | None) -> float:
    """Where the horizontal axis of a growing curve ends: the known end where it is near, else a round number that
    the curve does not outgrow soon (each time it does, every cell of the plot changes)."""
    if end is not None and end <= max(10.0, last * 3):
        return max(end, last)
    scale = 10.0 ** math.floor(math.log10(max(last, 1.0)))
    for factor in (1, 2, 4, 8, 10, 20):
        if factor * scale >= max(last * 1.05, 10):
            return min(factor * scale, end if end is not None else math.inf)
    return last


def axis_label(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 10_000 or abs(value) < 0.01:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def can_be_log(series: Iterable[Series]) -> bool:
    """Whether a logarithmic axis shows all of it: nothing below zero, something above."""
    values = [y for one in series for _, y in one.points if math.isfinite(y)]
    return bool(values) and min(values) >= 0 and max(values) > 0


def plot_lines(
    series: Sequence[Series],
    width: int,
    height: int,
    *,
    x_max: float | None = None,
    log: bool = False,
    cursor: float | None = None,
) -> list[Line]:
    """The plot as ``height`` lines of ``width`` cells; later series lie over earlier ones.

    ``x_max`` leaves room for what is still to come, ``log`` draws powers of ten (zeros lie at the bottom), ``cursor``
    is an x whose column is marked. Empty where there is nothing to draw or no room for it.
    """
    clean = [
        Series([(x, y) for x, y in one.points if math.isfinite(y)], one.tone, one.mark) for one in series
    ]
    drawn = [point for one in clean for point in one.points]
    if not drawn or width < 12 or height < 3:
        return []
    floor = 0.0
    if log:
        floor = min((y for _, y in drawn if y > 0), default=1.0) / 2
        clean = [
            Series([(x, math.log10(max(y, floor))) for x, y in one.points], one.tone, one.mark)
            for one in clean
        ]
        drawn = [point for one in clean for point in one.points]
    heights = [y for _, y in drawn]
    low, high = (math.floor(min(heights)), math.ceil(max(heights))) if log else nice_bounds(heights)
    if low == high:
        high = low + 1
    rows = height - 1
    ticks = _ticks(low, high, rows, log)
    gutter = max(len(label) for label in ticks.values()) + 1
    x_low = min(x for x, _ in drawn)
    x_high = max(*(x for x, _ in drawn), x_max or 0, x_low + 1)
    frame = Frame(width - gutter - 1, rows, x_low, x_high, low, high)
    cells = _paint(clean, frame, cursor)
    lines = [(*y_axis(ticks.get(row, ""), gutter), *_runs(cells[row])) for row in range(rows)]
    return [*lines, x_axis(gutter, frame.columns, x_low, x_high)]


def _ticks(low: float, high: float, rows: int, log: bool) -> dict[int, str]:
    count = 3 if rows >= 5 else 2
    places = {round(index * (rows - 1) / (count - 1)): index / (count - 1) for index in range(count)}
    values = {row: high - (high - low) * share for row, share in places.items()}
    return {row: axis_label(10**value if log else value) for row, value in values.items()}


def _paint(series: Sequence[Series], frame: Frame, cursor: float | None) -> list[list[Span]]:
    """The cells of the area. A cell has one tone: that of the last series in it."""
    dots = [[0] * frame.columns for _ in range(frame.rows)]
    cells: list[list[Span]] = [[(" ", Tone.PLAIN)] * frame.columns for _ in range(frame.rows)]
    if cursor is not None:
        column = frame.dot(cursor, frame.low)[0] // 2
        for row in cells:
            row[column] = (CURSOR, Tone.ACCENT)
    for one in series:
        if one.mark:
            for x, y in one.points:
                across, down = frame.dot(x, y)
                cells[down // 4][across // 2] = (one.mark, one.tone)
            continue
        for across, down in _line(one.points, frame):
            x, y = across // 2, down // 4
            dots[y][x] |= _DOTS[down % 4][across % 2]
            cells[y][x] = (chr(0x2800 + dots[y][x]), one.tone)
    return cells


def _line(points: Points, frame: Frame) -> Iterable[tuple[int, int]]:
    """The dots of a line through the points."""
    before: tuple[int, int] | None = None
    for point in points:
        x, y = frame.dot(*point)
        if before is None:
            yield x, y
        else:
            steps = max(abs(x - before[0]), abs(y - before[1]), 1)
            for step in range(steps + 1):
                share = step / steps
                yield round(before[0] + (x - before[0]) * share), round(before[1] + (y - before[1]) * share)
        before = (x, y)


def _runs(cells: Sequence[Span]) -> list[Span]:
    """Cells joined into runs of one tone, blanks at the end left out."""
    spans: list[Span] = []
    for text, tone in cells:
        if spans and (spans[-1][1] is tone or text == " "):
            spans[-1] = (spans[-1][0] + text, spans[-1][1])
        else:
            spans.append((text, tone))
    while spans and not spans[-1][0].strip():
        spans.pop()
    if spans:
        spans[-1] = (spans[-1][0].rstrip(" "), spans[-1][1])
    return spans


def y_axis(label: str, gutter: int) -> Line:
    """What is left of a line of the plot: its number, where it has one, and the axis."""
    return ((label.rjust(gutter - 1) + " ", Tone.DIM), ("┤" if label else "│", Tone.FAINT))


def x_axis(gutter: int, columns: int, x_low: float, x_high: float) -> Line:
    """The line below a plot, with its ends (and the middle, where there is room) in numbers."""
    left, right = f"{x_low:g}", f"{x_high:g}"
    middle = f"{round((x_low + x_high) / 2):g}" if x_high - x_low >= 4 and columns > 30 else ""
    line = list("─" * columns)
    for label, at in ((left, 0), (middle, (columns - len(middle)) // 2), (right, columns - len(right))):
        line[at : at + len(label)] = label
    axis = joined((char, Tone.FAINT if char == "─" else Tone.DIM) for char in line)
    return ((" " * gutter, Tone.PLAIN), ("└", Tone.FAINT), *axis)


def smoothed(points: Points, window: int) -> list[tuple[float, float]]:
    """The mean of each point and up to ``window - 1`` before it."""
    means: list[tuple[float, float]] = []
    for place, (x, _) in enumerate(points):
        part = [y for _, y in points[max(0, place - window + 1) : place + 1] if math.isfinite(y)]
        if part:
            means.append((x, sum(part) / len(part)))
    return means


def empty_plot(width: int, height: int, words: str) -> list[Line]:
    """A frame with a sentence in it, where there is nothing to plot yet."""
    middle = max(0, height // 2 - 1)
    text = clip(plain(words, Tone.DIM), width)
    room = max(0, (width - len(words)) // 2)
    return [((" " * room, Tone.PLAIN), *text) if y == middle else () for y in range(height)]
