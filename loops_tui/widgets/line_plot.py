"""A line plot in braille dots: two columns and four rows of dots to a cell.

Own code rather than a plotting package: it draws in the theme's tones, sends few bytes (one run of one tone per
line), and costs nothing to import before the first paint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, clip, plain

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def nice_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Bounds of the vertical axis: 0..1 for values that live there, otherwise the range with a little air."""
    low, high = min(values), max(values)
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return low - pad, high + pad
    step = 10 ** math.floor(math.log10(high - low)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def axis_label(value: float) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1000 or abs(value) < 0.01:
        return f"{value:.0e}"
    return f"{value:.2f}".rstrip("0").rstrip(".")


def plot_lines(
    points: Sequence[tuple[float, float]],
    width: int,
    height: int,
    *,
    x_max: float | None = None,
    tone: Tone = Tone.GOOD,
) -> list[Line]:
    """The plot as ``height`` lines of ``width`` cells. ``points`` are (x, y), x rising; ``x_max`` leaves room for
    what is still to come."""
    return overlay_lines([(points, tone)], width, height, x_max=x_max)


def overlay_lines(
    series: Sequence[tuple[Sequence[tuple[float, float]], Tone]],
    width: int,
    height: int,
    *,
    x_max: float | None = None,
) -> list[Line]:
    """Several series on one pair of axes, each in its tone; where two share a cell, it has the later one's."""
    finite = [([(x, y) for x, y in points if math.isfinite(y)], tone) for points, tone in series]
    drawn = [(points, tone) for points, tone in finite if points]
    if not drawn or width < 12 or height < 3:
        return []
    low, high = nice_bounds([y for points, _ in drawn for _, y in points])
    rows = height - 1
    ticks = _ticks(low, high, rows)
    gutter = max(len(label) for label in ticks.values()) + 1
    columns = width - gutter - 1
    x_low = min(points[0][0] for points, _ in drawn)
    x_high = max(*(points[-1][0] for points, _ in drawn), x_max or 0, x_low + 1)
    layers = [(_draw(points, columns, rows, (x_low, x_high), (low, high)), tone) for points, tone in drawn]
    lines: list[Line] = []
    for row in range(rows):
        label = ticks.get(row, "")
        edge = "┤" if label else "│"
        axis: Line = ((label.rjust(gutter - 1) + " ", Tone.DIM), (edge, Tone.FAINT))
        lines.append((*axis, *_cells_of([(dots[row], tone) for dots, tone in layers])))
    lines.append(_x_axis(gutter, columns, x_low, x_high))
    return lines


def _cells_of(layers: Sequence[tuple[Sequence[int], Tone]]) -> list[Span]:
    """One row of cells in as few spans as possible, without the blanks at its end."""
    spans: list[Span] = []
    for place in range(len(layers[0][0])):
        dots, tone = 0, layers[0][1]
        for cells, own in layers:
            if cells[place]:
                dots, tone = dots | cells[place], own
        char = chr(0x2800 + dots) if dots else " "
        if spans and (spans[-1][1] is tone or not dots):
            spans[-1] = (spans[-1][0] + char, spans[-1][1])
        else:
            spans.append((char, tone))
    if spans:
        spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
    return [span for span in spans if span[0]]


def _ticks(low: float, high: float, rows: int) -> dict[int, str]:
    count = 3 if rows >= 5 else 2
    places = {round(index * (rows - 1) / (count - 1)): index / (count - 1) for index in range(count)}
    return {row: axis_label(high - (high - low) * share) for row, share in places.items()}


def _draw(
    points: Sequence[tuple[float, float]],
    columns: int,
    rows: int,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
) -> list[list[int]]:
    cells = [[0] * columns for _ in range(rows)]
    wide, tall = columns * 2 - 1, rows * 4 - 1

    def place(point: tuple[float, float]) -> tuple[int, int]:
        x = round((point[0] - x_range[0]) / (x_range[1] - x_range[0]) * wide)
        y = round((1 - (point[1] - y_range[0]) / (y_range[1] - y_range[0])) * tall)
        return x, max(0, min(tall, y))

    def dot(x: int, y: int) -> None:
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    before: tuple[int, int] | None = None
    for point in points:
        x, y = place(point)
        if before is None:
            dot(x, y)
        else:
            steps = max(abs(x - before[0]), abs(y - before[1]), 1)
            for step in range(steps + 1):
                share = step / steps
                dot(round(before[0] + (x - before[0]) * share), round(before[1] + (y - before[1]) * share))
        before = (x, y)
    return cells


def _x_axis(gutter: int, columns: int, x_low: float, x_high: float) -> Line:
    left, right = f"{x_low:g}", f"{x_high:g}"
    middle = f"{round((x_low + x_high) / 2):g}" if x_high - x_low >= 4 and columns > 30 else ""
    line = list("─" * columns)
    for label, at in ((left, 0), (middle, (columns - len(middle)) // 2), (right, columns - len(right))):
        line[at : at + len(label)] = label
    text = "".join(line)
    spans: list[Span] = [(" " * gutter, Tone.PLAIN), ("└", Tone.FAINT)]
    run = ""
    for char in text:
        if run and (char == "─") != (run[-1] == "─"):
            spans.append((run, Tone.FAINT if run[-1] == "─" else Tone.DIM))
            run = ""
        run += char
    spans.append((run, Tone.FAINT if run[-1] == "─" else Tone.DIM))
    return tuple(spans)


def empty_plot(width: int, height: int, words: str) -> list[Line]:
    """A frame with a sentence in it, where there is nothing to plot yet."""
    middle = max(0, height // 2 - 1)
    text = clip(plain(words, Tone.DIM), width)
    room = max(0, (width - len(words)) // 2)
    return [((" " * room, Tone.PLAIN), *text) if y == middle else () for y in range(height)]
