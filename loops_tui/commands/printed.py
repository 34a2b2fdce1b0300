"""What others print while a command runs: episodes, and the libraries that they use.

An episode may print what a model wrote. On a terminal that text could move the cursor, rename the window or fill the
clipboard, so there it is shown as any other text from outside: marks for what is no plain character.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from loops_tui.widgets.safe_text import safe


class Harmless:
    """A text stream that passes on lines which a terminal only shows; all but writing is the stream's below."""

    def __init__(self, stream: TextIO) -> None:
        self.below = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)

    def write(self, text: str) -> int:
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.below.write("\n".join(safe(line) for line in lines))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def harmless_printing(*, drawn: bool = False) -> Iterator[None]:
    """Whatever is printed meanwhile reaches a terminal as text; files and pipes get it as it is.

    ``drawn``: somebody draws on a terminal, and takes what is printed to put it there, without saying that it is one.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (
        Harmless(stream) if drawn or _is_terminal(stream) else stream for stream in before
    )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def to_draw_on(stream: TextIO) -> TextIO:
    """The stream itself, for what this program draws with sequences of its own."""
    while isinstance(stream, Harmless):
        stream = stream.below
    return stream


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
