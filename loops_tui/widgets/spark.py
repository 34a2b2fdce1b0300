"""A series of numbers in one line of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line

BLOCKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float], width: int, low: float | None = None, high: float | None = None) -> str:
    """The newest values in ``width`` cells, scaled between ``low`` and ``high`` (the series' own range otherwise).

    A series longer than the line is averaged into its cells, so that its whole course stays visible.
    """
    if width <= 0 or not values:
        return ""
    cells = _bins(values, width)
    bottom = min(cells) if low is None else low
    top = max(cells) if high is None else high
    span = top - bottom
    if span <= 0:
        return BLOCKS[3] * len(cells)
    last = len(BLOCKS) - 1
    return "".join(BLOCKS[max(0, min(last, round((value - bottom) / span * last)))] for value in cells)


@dataclass(frozen=True, slots=True)
class Spark:
    """A spark as a table's cell: as wide as its column."""

    values: tuple[float, ...]
    tone: Tone

    def line(self, width: int) -> Line:
        if not self.values:
            return ()
        unit = min(self.values) >= 0 and max(self.values) <= 1
        return ((spark(self.values, width, *((0.0, 1.0) if unit else (None, None))), self.tone),)


def _bins(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    if count <= width:
        return list(values)
    cells = []
    for index in range(width):
        start, end = index * count // width, max(index * count // width + 1, (index + 1) * count // width)
        part = values[start:end]
        cells.append(sum(part) / len(part))
    return cells
