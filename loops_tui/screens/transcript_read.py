"""What the Transcript screen reads; it is laid out on the reading thread too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.store.rows import AttemptRow, GroupRow, TranscriptRow
from loops_tui.screens.transcript_text import Layout, lay_out

if TYPE_CHECKING:
    from engine.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class Want:
    """Which attempt, and how it is to be laid out."""

    group_id: int
    attempt: int
    width: int
    mode: str


@dataclass(frozen=True, slots=True)
class TranscriptView:
    """An attempt's conversation as its screen shows it."""

    want: Want
    group: GroupRow | None
    attempts: Sequence[AttemptRow]
    attempt: AttemptRow | None
    transcript: TranscriptRow | None
    layout: Layout | None


class TranscriptWatch:
    """Reads one run's transcripts. All calls come from the reading thread."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._kept: TranscriptView | None = None

    def read(self, reader: StoreReader, want: Want) -> TranscriptView:
        attempts = reader.attempts(self._run_id, want.group_id)
        attempt = next((row for row in attempts if row.attempt == want.attempt), None)
        kept = self._kept
        same = kept is not None and (kept.want.group_id, kept.want.attempt) == (want.group_id, want.attempt)
        transcript = kept.transcript if kept is not None and same else None
        if transcript is None or kept is None or kept.attempt != attempt:
            transcript = reader.transcript(self._run_id, want.group_id, want.attempt)
        layout = kept.layout if kept is not None and same else None
        if kept is None or kept.want != want or kept.attempt != attempt or kept.transcript is not transcript:
            layout = None if transcript is None else lay_out(transcript, attempt, want.width, want.mode)
        group = reader.group(self._run_id, want.group_id)
        self._kept = TranscriptView(want, group, attempts, attempt, transcript, layout)
        return self._kept
