"""The attempts of the step in hand as one bar. Each state has a shade of its own, so the bar reads without colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, in_room

SHADES: dict[str, tuple[str, Tone]] = {
    "done": ("█", Tone.GOOD),
    "grading": ("▓", Tone.ACCENT),
    "acting": ("▒", Tone.INFO),
    "sampling": ("░", Tone.INFO),
    "setup": ("∷", Tone.DIM),
    "sandbox": (":", Tone.DIM),
    "queued": ("·", Tone.FAINT),
}


def step_bar(counts: Mapping[str, int], total: int, width: int) -> Line:
    """``counts`` by the names of :data:`SHADES`; what they do not account for is still to come."""
    total = max(total, sum(counts.values()), 1)
    spans: list[Span] = []
    seen = used = 0
    for name, (char, tone) in SHADES.items():
        number = counts.get(name, 0)
        if not number or name == "queued":
            continue
        seen += number
        # Rounded ends rather than rounded parts: the parts then always fill the whole.
        end = max(round(seen / total * width), min(used + 1, width))
        if end > used:
            spans.append((char * (end - used), tone))
            used = end
    if used < width:
        spans.append(("·" * (width - used), Tone.FAINT))
    return tuple(spans)


def step_legend(counts: Mapping[str, int], gap: int = 2, width: int | None = None) -> Line:
    """The same counts in words. A name that is in ``counts`` keeps its place although it counts none: so the line
    stands still while attempts go through it. ``width``: what does not fit so many cells is left out."""
    most = len(str(max(counts.values(), default=0)))
    parts: list[Line] = []
    for name, (char, tone) in SHADES.items():
        if name in counts:
            parts.append(
                ((f"{char} ", tone), (f"{name} ", Tone.DIM), (f"{counts[name]:<{most}}", Tone.PLAIN))
            )
    space: Line = ((" " * gap, Tone.PLAIN),)
    if width is not None:
        return in_room(parts, width, space)
    return tuple(span for part in parts for span in (*part, *space))


_SHARE_SHADES = (
    ("█", Tone.INFO),
    ("▓", Tone.ACCENT),
    ("▒", Tone.GOOD),
    ("░", Tone.WARN),
    ("∷", Tone.TITLE),
    ("·", Tone.DIM),
    ("┄", Tone.FAINT),
)


def share_bar(
    shares: Mapping[str, float], width: int, shades: Sequence[tuple[str, Tone]] = _SHARE_SHADES
) -> Line:
    """Shares of a whole (time, mostly) as one bar; the place in ``shares`` decides the shade."""
    spans: list[Span] = []
    whole = sum(shares.values()) or 1.0
    seen, used = 0.0, 0
    for place, share in enumerate(shares.values()):
        seen += share
        end = min(width, round(seen / whole * width))
        char, tone = shades[place % len(shades)]
        if end > used:
            spans.append((char * (end - used), tone))
            used = end
    return tuple(spans)


def share_shade(place: int) -> Span:
    return _SHARE_SHADES[place % len(_SHARE_SHADES)]


def share_legend(shares: Mapping[str, float], width: int) -> list[Line]:
    """The shares in words, on as many lines as it takes."""
    whole = sum(shares.values()) or 1.0
    lines: list[list[Span]] = [[]]
    used = 0
    for place, (name, share) in enumerate(shares.items()):
        if share / whole < 0.005:
            continue  # it rounds to nothing
        char, tone = share_shade(place)
        words = f"{name} {share / whole:.0%}"
        cells = cell_len(words) + 2
        if used and used + 2 + cells > width:
            lines.append([])
            used = 0
        if used:
            lines[-1].append(("  ", Tone.PLAIN))
            used += 2
        lines[-1].extend(((f"{char} ", tone), (words, Tone.DIM)))
        used += cells
    return [tuple(line) for line in lines]
