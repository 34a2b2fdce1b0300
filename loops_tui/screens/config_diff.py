"""Two texts of one config, line by line."""

from __future__ import annotations

import difflib
from typing import ClassVar

from textual.binding import Binding, BindingType

from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.sheet import Sheet
from loops_tui.widgets.spans import Line, plain

CONTEXT = 3
_TONES = {"+": Tone.GOOD, "-": Tone.BAD, "@": Tone.INFO}


def diff_lines(before: str, after: str) -> list[Line]:
    """The unified difference; what both have alike only around what differs."""
    lines: list[Line] = []
    difference = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=CONTEXT)
    for number, line in enumerate(difference):
        if number < 2:
            continue  # names of files, which the title has
        tone = _TONES.get(line[:1], Tone.DIM)
        if line.startswith("@@"):
            if lines:
                lines.append(())
            lines.append(plain(f"line {line.split('+')[1].split(',')[0].split(' ')[0]}", tone))
        else:
            lines.append(plain(f"{line[:1] or ' '} {safe(line[1:])}", tone))
    return lines or [plain("The two are the same, line by line.", Tone.DIM)]


def counts(before: str, after: str) -> tuple[int, int]:
    """How many lines are new, and how many gone."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=True)
    new = gone = 0
    for tag, low, high, from_, to in matcher.get_opcodes():
        if tag != "equal":
            gone += high - low
            new += to - from_
    return new, gone


class DiffScreen(Sheet):
    """The difference, as of :func:`diff_lines`, which takes its time over large texts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "Close", id="diff.close", tooltip="Back to the config"),
    ]
