"""What the screen of two attempts reads, and where the two first differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from loops_tui.screens.transcript_read import TranscriptView, TranscriptWatch, Want
from loops_tui.screens.transcript_source import turn_source
from loops_tui.screens.transcript_text import Layout

if TYPE_CHECKING:
    from engine.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class Difference:
    """The first turn that is not the same in both, and the first line of it that differs on each side."""

    turn: int  # from 0
    role: str
    lines: tuple[int, int]
    ended: str = ""  # "left" or "right" where that one has no such turn


@dataclass(frozen=True, slots=True)
class PairView:
    """Two attempts of one group."""

    left: TranscriptView
    right: TranscriptView
    difference: Difference | None


class PairWatch:
    """Reads both. All calls come from the reading thread."""

    def __init__(self, run_id: str) -> None:
        self._watches = TranscriptWatch(run_id), TranscriptWatch(run_id)
        self._kept: PairView | None = None

    def read(self, reader: StoreReader, left: Want, right: Want) -> PairView:
        views = [watch.read(reader, want) for watch, want in zip(self._watches, (left, right), strict=True)]
        kept = self._kept
        if kept is not None and kept.left.layout is views[0].layout and kept.right.layout is views[1].layout:
            difference = kept.difference
        else:
            difference = first_difference(*views)
        self._kept = PairView(views[0], views[1], difference)
        return self._kept


def first_difference(left: TranscriptView, right: TranscriptView) -> Difference | None:
    """Where the two conversations part; None where they never do, or one of them was not kept."""
    if left.transcript is None or right.transcript is None or left.layout is None or right.layout is None:
        return None
    turns = zip_longest(left.transcript.turns, right.transcript.turns)
    for place, (one, other) in enumerate(turns):
        if one is None or other is None:
            shown = (left, right)[one is None].transcript
            role = str(shown.turns[place].get("role", "?")) if shown is not None else "?"
            lines = left.layout.starts[place], right.layout.starts[place]
            return Difference(place, role, lines, "left" if one is None else "right")
        if one.get("role") != other.get("role") or turn_source(one) != turn_source(other):
            return Difference(place, str(one.get("role", "?")), _lines(left.layout, right.layout, place))
    return None


def _lines(left: Layout, right: Layout, turn: int) -> tuple[int, int]:
    """The first line of this turn, after its heading, that is shown differently."""
    starts = left.starts[turn], right.starts[turn]
    length = min(left.starts[turn + 1] - starts[0], right.starts[turn + 1] - starts[1])
    for place in range(1, length):
        if left.lines[starts[0] + place] != right.lines[starts[1] + place]:
            return starts[0] + place, starts[1] + place
    return starts[0] + length - 1, starts[1] + length - 1
