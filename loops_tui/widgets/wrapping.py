"""Breaking safe text into lines of so many cells."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from loops_tui.widgets.spans import Line, Span


def wrap(text: str, width: int) -> Iterator[str]:
    """The text in pieces of at most ``width`` cells, broken between words where that is possible."""
    width = max(1, width)
    rest = text
    if not rest:
        yield ""
        return
    ascii_only = rest.isascii()
    while rest:
        if len(rest) <= width and (ascii_only or cell_len(rest) <= width):
            yield rest
            return
        cut = width if ascii_only else _cells_to_index(rest, width)
        space = rest.rfind(" ", 0, cut + 1)
        # A break far to the left wastes more than it explains.
        if space > cut * 0.6:
            yield rest[:space]
            rest = rest[space + 1 :]
        else:
            yield rest[:cut]
            rest = rest[cut:]


def _cells_to_index(text: str, width: int) -> int:
    """How many characters fit into ``width`` cells, at least one."""
    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return max(1, index)
    return len(text)


def wrap_spans(spans: list[Span], width: int) -> Iterator[Line]:
    """Spans as lines of at most ``width`` cells, broken anywhere (tokens, not words)."""
    line: list[Span] = []
    used = 0
    for text, tone in spans:
        rest = text
        while rest:
            cells = cell_len(rest)
            if used + cells <= width:
                line.append((rest, tone))
                used += cells
                break
            if used >= width:
                yield tuple(line)
                line, used = [], 0
                continue
            cut = _cells_to_index(rest, width - used)
            if cell_len(rest[:cut]) > width - used and line:
                yield tuple(line)
                line, used = [], 0
                continue
            line.append((rest[:cut], tone))
            rest = rest[cut:]
            yield tuple(line)
            line, used = [], 0
    if line:
        yield tuple(line)
