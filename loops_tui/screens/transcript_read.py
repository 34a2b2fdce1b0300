"""What the Transcript screen reads; it is laid out on the reading thread too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.store.rows import AttemptRow, GroupRow, TranscriptRow
from loops_tui.screens.transcript_text import Layout, lay_out
from loops_tui.widgets.line_search import LineSearch

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

LONG = 10_000  # lines: a search over more of them is prepared here, so that no key waits for it
FIRST_LINES = 1500  # laid out first: many screens full, in a few milliseconds; the rest follows


@dataclass(frozen=True, slots=True)
class Want:
    """Which attempt, and how it is to be laid out; ``whole`` or only its beginning."""

    group_id: int
    attempt: int
    width: int
    mode: str
    whole: bool = True

    @property
    def place(self) -> tuple[int, int]:
        """The attempt: its group's id and its number."""
        return self.group_id, self.attempt


@dataclass(frozen=True, slots=True)
class Beyond:
    """The attempt behind an end of a group: the first or last one of its neighbour."""

    group: GroupRow
    attempt: int


@dataclass(frozen=True, slots=True)
class TranscriptView:
    """An attempt's conversation as its screen shows it."""

    want: Want
    group: GroupRow | None
    attempts: Sequence[AttemptRow]
    attempt: AttemptRow | None
    transcript: TranscriptRow | None
    layout: Layout | None
    before: Beyond | None = None  # where this is the group's first attempt
    after: Beyond | None = None  # where it is the last one


class TranscriptWatch:
    """Reads one run's transcripts. All calls come from the reading thread."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._kept: TranscriptView | None = None

    def read(self, reader: StoreReader, want: Want) -> TranscriptView:
        attempts = reader.attempts(self._run_id, want.group_id)
        attempt = next((row for row in attempts if row.attempt == want.attempt), None)
        kept = self._kept
        if kept is not None and (kept.want.place, kept.attempt) != (want.place, attempt):
            kept = None  # of another attempt, or this one has gone on
        transcript = None if kept is None else kept.transcript
        if transcript is None:
            transcript = reader.transcript(self._run_id, want.group_id, want.attempt)
        if kept is not None and kept.want == want and kept.transcript is transcript:
            layout = kept.layout
        else:
            layout = None if transcript is None else _laid_out(transcript, attempt, want)
        group = reader.group(self._run_id, want.group_id)
        numbers = [row.attempt for row in attempts]
        self._kept = TranscriptView(
            want,
            group,
            attempts,
            attempt,
            transcript,
            layout,
            self._beyond(reader, want.group_id, -1) if numbers and want.attempt == numbers[0] else None,
            self._beyond(reader, want.group_id, 1) if numbers and want.attempt == numbers[-1] else None,
        )
        return self._kept

    def _beyond(self, reader: StoreReader, group_id: int, by: int) -> Beyond | None:
        group = reader.neighbour_group(self._run_id, group_id, by)
        if group is None:
            return None
        numbers = [row.attempt for row in reader.attempts(self._run_id, group.group_id)]
        return Beyond(group, numbers[0 if by > 0 else -1]) if numbers else None


def _laid_out(transcript: TranscriptRow, attempt: AttemptRow | None, want: Want) -> Layout:
    limit = None if want.whole else FIRST_LINES
    layout = lay_out(transcript, attempt, want.width, want.mode, limit)
    if len(layout.lines) > LONG:
        layout.search = LineSearch(layout.lines)
    return layout


def extremes(attempts: Sequence[AttemptRow]) -> tuple[AttemptRow, AttemptRow] | None:
    """The attempts with the highest and the lowest reward; None where none is higher than another."""
    graded = [(row.reward, row) for row in attempts if row.reward is not None]
    if not graded:
        return None
    best, worst = (choose(graded, key=lambda item: item[0])[1] for choose in (max, min))
    return None if best.reward == worst.reward else (best, worst)
