"""Finding a text in lines that may have been broken to fit a width."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, joined, text_of
from loops_tui.widgets.wrapping import Continued

MOST = 10_000  # matches that are kept; nobody steps through more


@dataclass(frozen=True, slots=True)
class Part:
    """Where (a part of) a match is on one line: from character ``start`` up to ``end``."""

    line: int
    start: int
    end: int


class LineSearch:
    """Lines put together as they were before they were broken, ready for one search after the other."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._sources = list(put_together(lines))

    def find(self, needle: str) -> tuple[list[tuple[Part, ...]], bool]:
        """The matches, each in its parts, one a line; and whether there are more than :data:`MOST`."""
        found: list[tuple[Part, ...]] = []
        folded = _folded(needle)
        for match in (match for source in self._sources for match in source.find(folded)):
            if len(found) == MOST:
                return found, True
            found.append(match)
        return found, False


@dataclass(slots=True)
class Source:
    """A line as it was before it was broken: its text, folded, and where each piece of it is shown."""

    text: str
    offsets: list[int]  # in the text
    lines: list[int]
    columns: list[int]  # the character of its line at which the piece begins

    def find(self, needle: str) -> Iterator[tuple[Part, ...]]:
        at = self.text.find(needle)
        while at >= 0:
            yield tuple(self._parts(at, at + len(needle)))
            at = self.text.find(needle, at + len(needle))

    def _parts(self, start: int, end: int) -> Iterator[Part]:
        place = bisect_right(self.offsets, start) - 1
        while place < len(self.offsets) and self.offsets[place] < end:
            offset, column = self.offsets[place], self.columns[place]
            # The space at which a line was broken belongs to no piece: a part may be shorter than what it covers.
            yield Part(self.lines[place], column + max(0, start - offset), column + end - offset)
            place += 1


def put_together(lines: Sequence[Line]) -> Iterator[Source]:
    texts: list[str] = []
    source = Source("", [], [], [])
    length = 0
    for place, line in enumerate(lines):
        before = 0
        glue: str | None = None
        for text, _ in line:
            if isinstance(text, Continued):
                glue = text.glue
                break
            before += len(text)
        if glue is None or not texts:
            if texts:
                source.text = _folded("".join(texts))
                yield source
            source, texts, length, before, glue = Source("", [], [], []), [], 0, 0, ""
        piece = text_of(line)[before:]
        source.offsets.append(length + len(glue))
        source.lines.append(place)
        source.columns.append(before)
        texts.append(glue + piece)
        length += len(glue) + len(piece)
    if texts:
        source.text = _folded("".join(texts))
        yield source


def _folded(text: str) -> str:
    """Without case and of the same length: a character that folds to several (ß) stays as it is."""
    folded = text.casefold()
    if len(folded) == len(text):
        return folded
    return "".join(small if len(small := char.casefold()) == 1 else char for char in text)


def marked(line: Line, found: Sequence[tuple[Part, int]], here: int) -> Line:
    """The line with its matches in other tones, the current one in a tone of its own."""
    tones: dict[int, Tone] = {}
    for part, match in found:
        tone = Tone.MATCH_HERE if match == here else Tone.MATCH
        tones.update(dict.fromkeys(range(part.start, part.end), tone))
    characters = ((char, own) for text, own in line for char in text)
    return tuple(joined((char, tones.get(place, own)) for place, (char, own) in enumerate(characters)))
