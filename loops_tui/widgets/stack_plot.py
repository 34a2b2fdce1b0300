"""Shares or counts over the steps as columns of shades: what makes up each step, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loops_tui.theme import Tone
from loops_tui.widgets.line_plot import CURSOR, axis_label, x_axis, y_axis
from loops_tui.widgets.spans import Line, Span, joined
from loops_tui.widgets.step_bar import share_shade

LEAST = 0.005  # a part smaller than this is not drawn: it would be many times too large


def stack_lines(
    columns: Sequence[tuple[float, Mapping[str, float]]],
    names: Sequence[str],
    width: int,
    height: int,
    *,
    x_max: float | None = None,
    shares: bool = True,
    cursor: float | None = None,
) -> list[Line]:
    """``columns`` are (step, amounts by name), steps rising; ``names`` from the bottom up, each in its shade.

    ``shares``: every column is filled up to the whole; otherwise its height is the sum, on one scale for all.
    """
    if not columns or width < 12 or height < 3:
        return []
    rows = height - 1
    sums = [sum(amounts.values()) for _, amounts in columns]
    top = 1.0 if shares else max(1.0, math.ceil(max(sums)))
    labels = {0: "100%" if shares else axis_label(top), rows - 1: "0"}
    gutter = max(len(label) for label in labels.values()) + 1
    wide = width - gutter - 1
    x_low = columns[0][0]
    x_high = max(columns[-1][0], x_max or 0, x_low + 1)
    cells: list[list[Span]] = [[(" ", Tone.PLAIN)] * wide for _ in range(rows)]
    for place, (step, amounts) in enumerate(columns):
        start = round((step - x_low) / (x_high - x_low + 1) * wide)
        following = columns[place + 1][0] if place + 1 < len(columns) else step + 1
        end = min(wide, max(start + 1, round((following - x_low) / (x_high - x_low + 1) * wide)))
        whole = sum(amounts.values()) or 1.0 if shares else top
        _fill(cells, range(start, end), [amounts.get(name, 0.0) / whole for name in names])
    if cursor is not None:
        column = min(wide - 1, round((cursor - x_low) / (x_high - x_low + 1) * wide))
        for row in cells:
            row[column] = (CURSOR, Tone.STRONG)
    lines = [(*y_axis(labels.get(row, ""), gutter), *joined(cells[row])) for row in range(rows)]
    return [*lines, x_axis(gutter, wide, x_low, x_high)]


def _fill(cells: list[list[Span]], columns: range, parts: Sequence[float]) -> None:
    """Stack parts (of the whole height) from the bottom; every part worth showing gets at least one cell."""
    if not any(parts):
        return
    rows = len(cells)
    heights = [max(1, round(part * rows)) if part >= LEAST else 0 for part in parts]
    excess = sum(heights) - max(1, min(rows, round(sum(parts) * rows)))
    while excess > 0 and max(heights) > 1:
        heights[heights.index(max(heights))] -= 1
        excess -= 1
    if excess < 0:
        heights[heights.index(max(heights))] -= excess
    level = rows - 1
    for place, height in enumerate(heights):
        for _ in range(height):
            for column in columns:
                if level >= 0:
                    cells[level][column] = share_shade(place)
            level -= 1


def stack_legend(names: Sequence[str], amounts: Mapping[str, float], width: int) -> list[Line]:
    """Shade, name and count of each that there is, on as many lines as it takes (shares: ``step_bar.share_legend``)."""
    lines: list[list[Span]] = [[]]
    used = 0
    for place, name in enumerate(names):
        char, tone = share_shade(place)
        said = f"{name} {amounts.get(name, 0.0):g}"
        if used and used + len(said) + 4 > width:
            lines.append([])
            used = 0
        lines[-1].extend(((f"{char} ", tone), (f"{said}  ", Tone.DIM)))
        used += len(said) + 4
    return [tuple(line) for line in lines]
