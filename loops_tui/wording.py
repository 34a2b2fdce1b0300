"""States, numbers and times in words: pure functions from rows to spans.

Every state has a glyph and a word, so that no meaning rests on colour alone. No emoji: their widths differ between
terminals.
"""

from __future__ import annotations

import math

from engine.store.rows import AttemptRow, AttemptState, GroupRow, GroupState, RunState
from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line

RUN_STATES: dict[RunState, tuple[str, str, Tone]] = {
    RunState.CREATED: ("○", "created", Tone.DIM),
    RunState.STARTING: ("◐", "starting", Tone.INFO),
    RunState.RUNNING: ("●", "running", Tone.GOOD),
    RunState.PAUSED: ("‖", "paused", Tone.WARN),
    RunState.STOPPING: ("◒", "stopping", Tone.WARN),
    RunState.DONE: ("✓", "done", Tone.GOOD),
    RunState.STOPPED: ("■", "stopped", Tone.DIM),
    RunState.ABORTED: ("×", "aborted", Tone.WARN),
    RunState.FAILED: ("×", "failed", Tone.BAD),
    RunState.INTERRUPTED: ("!", "interrupted", Tone.BAD),
}

GROUP_STATES: dict[GroupState, tuple[str, str, Tone]] = {
    GroupState.RUNNING: ("●", "running", Tone.INFO),
    GroupState.READY: ("◐", "ready", Tone.PLAIN),
    GroupState.TRAINED: ("✓", "trained", Tone.GOOD),
    GroupState.EVALUATED: ("✓", "evaluated", Tone.INFO),
    GroupState.REJECTED: ("–", "rejected", Tone.WARN),
    GroupState.LOST: ("×", "lost", Tone.BAD),
}

ATTEMPT_STATES: dict[AttemptState, tuple[str, str, Tone]] = {
    AttemptState.QUEUED: ("·", "queued", Tone.DIM),
    AttemptState.PROVISIONING: ("◌", "sandbox", Tone.INFO),
    AttemptState.SETUP: ("◌", "setup", Tone.INFO),
    AttemptState.SAMPLING: ("●", "sampling", Tone.INFO),
    AttemptState.ACTING: ("▸", "acting", Tone.INFO),
    AttemptState.GRADING: ("◆", "grading", Tone.ACCENT),
    AttemptState.DONE: ("✓", "done", Tone.GOOD),
    AttemptState.LOST: ("×", "lost", Tone.BAD),
    AttemptState.DISCARDED: ("–", "discarded", Tone.WARN),
    AttemptState.CANCELLED: ("–", "cancelled", Tone.DIM),
}

REASONS = {
    "no_variance": "all alike",
    "too_many_losses": "many lost",
    "no_tokens": "no tokens",
    "stopped": "stopped",
}


def run_state(state: RunState) -> Line:
    glyph, word, tone = RUN_STATES[state]
    return ((f"{glyph} {word}", tone),)


def group_state(row: GroupRow) -> Line:
    glyph, word, tone = GROUP_STATES[row.state]
    if row.state is GroupState.REJECTED and row.reason:
        word = REASONS.get(row.reason, row.reason.replace("_", " "))
    return ((f"{glyph} {word}", tone),)


def attempt_state(row: AttemptRow) -> Line:
    glyph, word, tone = ATTEMPT_STATES[row.state]
    if row.tries > 1:
        word += f" (try {row.tries})"
    return ((f"{glyph} {word}", tone),)


def number(value: float | None, digits: int = 2) -> str:
    """A number at a glance; a dash for what is not known (which is not zero)."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "nan"
    if value == 0:
        return "0" if digits > 2 else "0.00"
    if abs(value) < 10**-digits or abs(value) >= 1e6:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"


def count(value: float | None) -> str:
    """A count with thousands shortened: 950, 12.3k, 4.1M."""
    if value is None:
        return "–"
    for limit, scale, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= limit:
            return f"{value / scale:.1f}{unit}"
    return f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """0.4s, 12s, 3m 05s, 2h 07m, 3d 04h."""
    if seconds is None:
        return "–"
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}h"


def elapsed(seconds: float | None) -> str:
    """As :func:`duration`, in whole seconds: a clock that ticks."""
    return "–" if seconds is None else duration(float(int(seconds))) if seconds >= 10 else f"{int(seconds)}s"


def ago(seconds: float) -> str:
    return "just now" if seconds < 5 else f"{elapsed(seconds)} ago"


def reward_tone(value: float | None) -> Tone:
    """The sign of a reward or advantage; the number itself says how much."""
    if value is None:
        return Tone.DIM
    return Tone.GOOD if value > 0 else Tone.PLAIN if value == 0 else Tone.BAD


def words(text: str) -> str:
    """A name from code as words: max_turns -> max turns."""
    return text.replace("_", " ")
