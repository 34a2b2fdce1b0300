"""An attempt in numbers: the line above its conversation, and the pane beside it."""

from __future__ import annotations

from loops_tui.screens.transcript_read import TranscriptView
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, clip, plain, spread
from loops_tui.widgets.step_bar import share_bar, share_shade
from loops_tui.wording import attempt_state, count, duration, group_state, number, reward_tone, signed, words


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
    right.append((f"   attempt {attempt.attempt + 1} of {len(view.attempts)} ", Tone.DIM))
    return spread(tuple(left), tuple(right), width)


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
    spent: dict[str, float] = {}
    for phase, span in (attempt.timeline if attempt is not None else {}).items():
        seconds = span[2] if len(span) > 2 else span[1] - span[0] if len(span) > 1 else 0.0
        if seconds > 0:
            spent[phase] = seconds
    if not spent:
        return []
    lines: list[Line] = [(), plain("Time", Tone.TITLE), share_bar(spent, width)]
    for place, (phase, seconds) in enumerate(spent.items()):
        char, tone = share_shade(place)
        label: Line = ((f"{char} ", tone), (safe(words(phase), 24), Tone.DIM))
        lines.append(spread(label, ((duration(seconds), Tone.PLAIN),), width))
    return lines


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
