"""Hits of a search over transcripts, as rows and lines: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.store.search import SearchHit
from engine.store.snippets import HIT_END, HIT_START
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain, text_of, width_of
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.widgets.wrapping import wrap
from loops_tui.wording import number, words

LIMIT = 200  # hits that are listed; a search with more is to be narrowed down
LEAD = 12  # characters before a snippet's first match
_MARKED = re.compile(f"{HIT_START}([^{HIT_END}]*){HIT_END}")

PLACE = Column("place", "attempt", 10)
COLUMNS = (
    Column("run", "run", 14, flex=1, most=24, drop=1),
    PLACE,
    Column("reward", "reward", 6, right=True),
    Column("task", "task", 12, flex=1, most=20, drop=3),
    Column("ending", "ended", 10, drop=2),
    Column("snippet", "found", 30, flex=6),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to one search."""

    text: str
    run_id: str | None
    hits: Sequence[SearchHit]
    runs: Mapping[str, str]  # names by id
    milliseconds: float

    @property
    def more(self) -> bool:
        """Whether there may be more hits than are listed."""
        return len(self.hits) >= LIMIT


def hit_key(hit: SearchHit) -> str:
    return f"{hit.run_id}/{hit.group_id}/{hit.attempt}"


def place_of(hit: SearchHit) -> str:
    """``g12 #3``, or of an evaluation ``e3 #0``."""
    group = f"g{hit.group_id}" if hit.group_id >= 0 else f"e{-hit.group_id}"
    return f"{group} #{hit.attempt}"


def columns_for(run_id: str | None) -> tuple[Column, ...]:
    """Inside one run its name says nothing."""
    return COLUMNS if run_id is None else COLUMNS[1:]


def hit_cells(hit: SearchHit, runs: Mapping[str, str], columns: Sequence[Column]) -> Cells:
    cells = {
        "run": plain(safe(runs.get(hit.run_id, hit.run_id), 60)),
        "place": plain(place_of(hit)),
        "reward": plain(number(hit.reward), Tone.STRONG),
        "task": plain(safe(hit.task_id, 60), Tone.DIM),
        "ending": plain(safe(words(hit.ending or "–"), 40), Tone.DIM),
        "snippet": from_first_hit(snippet(hit.snippet)),
    }
    return tuple(cells[column.key] for column in columns)


def snippet(text: str) -> Line:
    """What surrounds the words found, these in a tone of their own; line breaks become spaces."""
    spans: list[Span] = []
    end = 0
    flat = " ".join(text.split("\n"))
    for match in _MARKED.finditer(flat):
        before = safe(flat[end : match.start()]) if match.start() > end else ""
        spans.extend(((before, Tone.DIM), (safe(match[1]), Tone.MATCH)))
        end = match.end()
    rest = flat[end:]
    spans.append((safe(rest) if rest else "", Tone.DIM))
    return tuple(span for span in spans if span[0])


def from_first_hit(line: Line) -> Line:
    """The line with a few characters before its first match: it must be seen in a narrow column."""
    if not line or line[0][1] is Tone.MATCH or len(line[0][0]) <= LEAD:
        return line
    text, tone = line[0]
    return (("…" + text[-LEAD:], tone), *line[1:])


def snippet_lines(text: str, width: int) -> list[Line]:
    """The whole snippet, wrapped."""
    line = snippet(text)
    whole = text_of(line)
    lines: list[Line] = []
    at = 0
    for piece in wrap(whole, max(10, width)):
        at = whole.index(piece, at)
        lines.append(_cut(line, at, at + len(piece)))
        at += len(piece)
    return lines


def _cut(line: Line, start: int, end: int) -> Line:
    spans: list[Span] = []
    at = 0
    for text, tone in line:
        part = text[max(0, start - at) : max(0, end - at)]
        if part:
            spans.append((part, tone))
        at += len(text)
    return tuple(spans)


def texts_to_find(query: str, hit: SearchHit) -> list[str]:
    """What to look for in the transcript itself: the query as it was typed, else the words that the index found."""
    found = _MARKED.findall(hit.snippet)
    return [text for text in dict.fromkeys((query.strip(), *found)) if text]


def details(found: Found | None, hit: SearchHit | None, width: int) -> list[Line]:
    """The hit under the cursor."""
    if found is None or hit is None:
        return []
    name = safe(found.runs.get(hit.run_id, ""), 60)
    about: Line = (
        (name, Tone.STRONG),
        (f"  {safe(hit.run_id, 40)}", Tone.DIM),
        (f"   {place_of(hit)}", Tone.PLAIN),
        ("   reward ", Tone.DIM),
        (number(hit.reward), Tone.STRONG),
        ("   ended: ", Tone.DIM),
        (safe(words(hit.ending or "–"), 60), Tone.PLAIN),
    )
    if width_of(about) > width:
        about = (*about[:1], *about[2:])
    return [about, (), *snippet_lines(hit.snippet, width)]


def said(found: Found) -> str:
    """How many, and how long it took."""
    count = len(found.hits)
    amount = f"the newest {count:,} hits" if found.more else f"{count:,} hit{'' if count == 1 else 's'}"
    return f"{amount} in {found.milliseconds:.0f} ms"


def empty_lines(found: Found | None, scope: str) -> list[Line]:
    """What to say where there is nothing to list."""
    if found is None or not found.text.strip():
        return [
            plain("Type words: transcripts that hold all of them are found, the newest first.", Tone.DIM),
            plain("The last word may be the beginning of one. Signs (=> or {{) are looked", Tone.DIM),
            plain("for in the newest transcripts.", Tone.DIM),
        ]
    return [
        (("No transcript of ", Tone.PLAIN), (scope, Tone.PLAIN), (" holds ", Tone.PLAIN),
         (f"“{safe(found.text, 60)}”", Tone.ACCENT)),
        (),
        plain("Only transcripts that were kept can be found:", Tone.DIM),
        plain('[output] trace = "full" keeps every one.', Tone.DIM),
    ]  # fmt: skip
