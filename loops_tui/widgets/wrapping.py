"""Breaking safe text into lines of so many cells."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from loops_tui.widgets.spans import Line, Span


class Continued(str):
    """A piece that goes on where the line before it was broken, so that a search can put the two together again."""

    __slots__ = ()
    glue = ""  # what stood between the two


class AfterSpace(Continued):
    """It goes on after a space, at which the line was broken and which is shown on neither."""

    __slots__ = ()
    glue = " "


def wrap(text: str, width: int) -> Iterator[str]:
    """The text in pieces of at most ``width`` cells, broken between words where that is possible.

    All but the first are :class:`Continued`.
    """
    width = max(1, width)
    rest = text
    if not rest:
        yield ""
        return
    ascii_only = rest.isascii()
    piece_of: type[str] = str
    while rest:
        if len(rest) <= width and (ascii_only or cell_len(rest) <= width):
            yield piece_of(rest)
            return
        cut = width if ascii_only else _cells_to_index(rest, width)
        space = rest.rfind(" ", 0, cut + 1)
        # A break far to the left wastes more than it explains.
        if space > cut * 0.6:
            yield piece_of(rest[:space])
            rest, piece_of = rest[space + 1 :], AfterSpace
        else:
            cut = _behind_a_part(rest, cut) or cut
            yield piece_of(rest[:cut])
            rest, piece_of = rest[cut:], Continued


def _behind_a_part(text: str, cut: int) -> int:
    """Where a path or a dotted key that does not fit ``cut`` characters ends a part of its own; 0: nowhere near."""
    part = max(text.rfind(sign, cut // 3, cut) for sign in "/.")
    return part + 1 if text[part + 1 : part + 2].isalpha() else 0


def _cells_to_index(text: str, width: int) -> int:
    """How many characters fit into ``width`` cells, at least one."""
    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return max(1, index)
    return len(text)


def wrap_spans(spans: list[Span], width: int) -> Iterator[Line]:
    """Spans as lines of at most ``width`` cells, broken anywhere (tokens, not words).

    All but the first begin with a :class:`Continued`.
    """
    line: list[Span] = []
    used = 0
    piece_of: type[str] = str  # of the first piece of the line in hand
    for text, tone in spans:
        rest = text
        while rest:
            cells = cell_len(rest)
            if used + cells <= width:
                line.append((rest if line else piece_of(rest), tone))
                used += cells
                break
            cut = _cells_to_index(rest, width - used) if used < width else 0
            if cut and (cell_len(rest[:cut]) <= width - used or not line):
                line.append((rest[:cut] if line else piece_of(rest[:cut]), tone))
                rest = rest[cut:]
            yield tuple(line)
            line, used, piece_of = [], 0, Continued
    if line:
        yield tuple(line)
