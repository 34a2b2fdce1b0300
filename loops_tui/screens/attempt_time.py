"""Where an attempt's time went, as a bar and in seconds: pure functions."""

from __future__ import annotations

from engine.store.rows import AttemptRow, AttemptState
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, clip, plain, spread, width_of
from loops_tui.widgets.step_bar import SHADES, share_bar
from loops_tui.wording import count, duration, words

PHASES = ("queued", "provisioning", "setup", "sampling", "acting", "grading")
# The shades of the step's bar, so that a phase looks the same in both.
_SHADES = tuple(SHADES[name] for name in ("queued", "sandbox", "setup", "sampling", "acting", "grading"))


def timeline(row: AttemptRow, now: float) -> dict[str, float]:
    """Seconds an attempt spent in each phase, every phase named: zeros where it was in none or that is not known yet.

    An attempt in flight has no timeline of its own yet: what has passed since it began counts for the phase it is in.
    """
    spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    begun = row.started_at if row.started_at is not None else now
    if row.queued_at is not None:
        spent["queued"] = max(0.0, begun - row.queued_at)
    for phase, span in row.timeline.items():
        seconds = span[2] if len(span) > 2 else span[1] - span[0] if len(span) > 1 else 0.0
        spent[phase] = max(0.0, seconds)
    if not row.timeline and row.ended_at is None and row.started_at is not None and row.state in spent:
        spent[str(row.state)] = max(0.0, now - row.started_at)
    return spent


def time_lines(spent: dict[str, float], width: int, *, across: bool = False) -> list[Line]:
    """The bar of a timeline, and its phases with their seconds: one a line, or as many as fit."""
    if not any(spent.values()):
        return []
    lines: list[Line] = [share_bar(spent, width, _SHADES)]
    row: list[Span] = []
    for place, (phase, seconds) in enumerate(spent.items()):
        if not seconds:
            continue
        char, tone = _SHADES[place % len(_SHADES)]
        label: Line = ((f"{char} ", tone), (safe(words(phase), 24), Tone.DIM))
        told = duration(seconds)
        if not across:
            lines.append(spread(label, ((told, Tone.PLAIN),), width))
            continue
        entry: Line = (*label, (f" {told}  ", Tone.PLAIN))
        if row and width_of(tuple(row)) + width_of(entry) > width + 2:
            lines.append(tuple(row))
            row = []
        row.extend(entry)
    if row:
        lines.append(tuple(row))
    return lines


def attempt_lines(row: AttemptRow, now: float, width: int) -> list[Line]:
    """One attempt in a few lines: where its time went, what it did, how it ended."""
    lines = time_lines(timeline(row, now), width, across=True)
    if not lines:
        told = "not begun yet" if row.state is AttemptState.QUEUED else "no times are known of it"
        lines.append(plain(told, Tone.DIM))
    if row.error or row.ending:
        ending = row.error or words(row.ending or "")
        lines.append((("ended: ", Tone.DIM), (safe(ending, 300), Tone.BAD if row.error else Tone.PLAIN)))
    facts: list[str] = []
    if row.sampled_tokens:
        facts.append(f"{count(row.sampled_tokens)} tokens of {count(row.prompt_tokens)} read")
    if row.version_min is not None:
        low, high = row.version_min, row.version_max
        facts.append(f"policy v{low}" if low == high else f"policies v{low} – v{high}")
    if row.segments > 1:
        facts.append(f"{row.segments} segments")
    if row.tries > 1:
        facts.append(f"{row.tries} tries")
    if facts:
        lines.append(plain(" · ".join(facts), Tone.DIM))
    return [clip(line, width) for line in lines]
