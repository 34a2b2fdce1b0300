"""An attempt in numbers: the line above its conversation, and the pane beside it."""

from __future__ import annotations

from loops_tui.screens.attempt_time import time_lines, timeline
from loops_tui.screens.transcript_read import TranscriptView, extremes
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, clip, plain, spread
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import attempt_state, count, group_state, number, reward_tone, signed, words


def transcript_header(view: TranscriptView, width: int) -> Line:
    """State, reward and ending in one line."""
    attempt = view.attempt
    if attempt is None:
        return plain(" not in the store", Tone.DIM)
    left: list[Span] = [(" ", Tone.PLAIN), *attempt_state(attempt)]
    left.extend((("   reward ", Tone.DIM), (number(attempt.reward), Tone.STRONG)))
    if attempt.advantage is not None:
        left.extend(
            (("   advantage ", Tone.DIM), (signed(attempt.advantage), reward_tone(attempt.advantage)))
        )
    ending = attempt.error or (words(attempt.ending) if attempt.ending else "")
    if ending:
        left.extend(
            (("   ended: ", Tone.DIM), (safe(ending, 200), Tone.BAD if attempt.error else Tone.PLAIN))
        )
    right: list[Span] = []
    if view.group is not None:
        right.append((safe(view.group.task_id, 40), Tone.DIM))
    right.append((f"   attempt {attempt.attempt + 1} of {len(view.attempts)}{_rank(view)} ", Tone.DIM))
    return spread(tuple(left), tuple(right), width)


def _rank(view: TranscriptView) -> str:
    """Whether it is the best or the worst of its group."""
    found, attempt = extremes(view.attempts), view.attempt
    if found is None or attempt is None:
        return ""
    best, worst = found
    return ", best" if attempt.reward == best.reward else ", worst" if attempt.reward == worst.reward else ""


def fact_lines(view: TranscriptView, width: int, height: int) -> list[Line]:
    """The attempt's figures, its times, its metadata, and how its group did."""
    attempt = view.attempt
    if attempt is None:
        return []

    def row(label: str, value: str, tone: Tone = Tone.PLAIN) -> Line:
        return spread(plain(label, Tone.DIM), ((value, tone),), width)

    versions = "–"
    if attempt.version_min is not None:
        low, high = attempt.version_min, attempt.version_max
        versions = f"v{low}" if low == high else f"v{low} – v{high}"
    lines: list[Line] = [
        spread(plain("state", Tone.DIM), attempt_state(attempt), width),
        row("reward", number(attempt.reward), Tone.STRONG),
        row("advantage", signed(attempt.advantage), reward_tone(attempt.advantage)),
        row("turns", str(attempt.turns)),
        row("tokens sampled", count(attempt.sampled_tokens)),
        row("tokens of prompts", count(attempt.prompt_tokens)),
        row("segments", str(attempt.segments)),
        row("policy", versions),
    ]
    if attempt.tries > 1:
        lines.append(row("tries", str(attempt.tries), Tone.WARN))
    lines.extend(_times(view, width))
    if attempt.metadata:
        lines.append(())
        for name, value in attempt.metadata.items():
            text = number(value) if isinstance(value, float) else str(value)
            lines.append(row(safe(words(str(name)), 30), safe(text, 60)))
    lines.extend(_group(view, width))
    return [clip(line, width) for line in lines[:height]]


def _times(view: TranscriptView, width: int) -> list[Line]:
    attempt = view.attempt
    if attempt is None:
        return []
    lines = time_lines(timeline(attempt, attempt.ended_at or 0.0), width)
    return [(), plain("Time", Tone.TITLE), *lines] if lines else []


def _group(view: TranscriptView, width: int) -> list[Line]:
    if not view.attempts:
        return []
    lines: list[Line] = [(), plain(f"Group {view.want.group_id}", Tone.TITLE)]
    if view.group is not None:
        mean = (("mean ", Tone.DIM), (number(view.group.reward_mean), Tone.PLAIN))
        lines.append(spread(group_state(view.group), mean, width))
    for row in view.attempts:
        here = row.attempt == view.want.attempt
        mark = "▌" if here else " "
        left: Line = ((f"{mark} #{row.attempt} ", Tone.STRONG if here else Tone.DIM), *attempt_state(row))
        lines.append(spread(left, ((number(row.reward), Tone.STRONG if here else Tone.PLAIN),), width))
    return lines


def nothing_lines(view: TranscriptView) -> list[Line]:
    """Why there is no conversation to show."""
    if view.attempt is None:
        told = [("This attempt is not in the store.", Tone.DIM)]
    elif view.attempt.ended_at is None:
        told = [(f"Nothing said yet: the attempt is {view.attempt.state}.", Tone.DIM)]
    else:
        told = [("Nothing was said: the attempt ended before the model replied.", Tone.STRONG)]
        if view.attempt.turns:
            told = [
                ("No transcript of this attempt was kept.", Tone.STRONG),
                ('[output] trace = "full" keeps every one, "samples" a few, "off" none.', Tone.DIM),
            ]
        if view.attempt.error:
            told.append((safe(view.attempt.error, 600), Tone.BAD))
    width = max(10, view.want.width)
    return [
        line for text, tone in told for line in ((), *(plain(piece, tone) for piece in wrap(text, width)))
    ]
