"""What an episode prints reaches a terminal as text, whatever is in it."""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path

import pytest

from engine.config.local_models import shipped_models
from loops_tui.commands.follow import progress_sink
from loops_tui.commands.printed import harmless_printing, to_draw_on
from tests.project.conftest import CONFIG, EPISODE
from tests.terminal.session import Session

EVIL = "\x1b]0;owned\x07\x1b[2Jhello\x9b5n\r\x1b[31mred\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def harmless(sent: str) -> bool:
    return not any(mark in sent for mark in ("\x1b]0", "\x1b[2J", "\x9b", "\x1b[31m", "\x07"))


def test_marks_stand_for_what_a_terminal_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    with harmless_printing():
        print(EVIL, end="")
        print("two\nlines\tand a tab", file=sys.stderr)
        logging.StreamHandler(sys.stderr).emit(logging.LogRecord("x", logging.INFO, "x", 1, EVIL, None, None))
        sys.stdout.writelines(["a\x1b[0m", "b\n"])
    assert sys.stdout is terminal
    sent = terminal.getvalue()
    assert harmless(sent)
    assert "hello" in sent
    assert "two\nlines and a tab\n" in sent
    assert sent.replace("\n", "").isprintable()


def test_a_bar_is_still_drawn_and_what_is_printed_beside_it_is_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = on_a_terminal(monkeypatch)
    with harmless_printing(), progress_sink(sys.stderr):
        print(EVIL, end="")
        print(EVIL, end="", file=sys.stderr)
    sent = terminal.getvalue()
    assert harmless(sent)
    assert sent.count("hello") == 2
    assert "\x1b[" in sent  # the bar's own


def test_a_file_gets_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with harmless_printing():
        print(EVIL, end="")
        assert to_draw_on(sys.stdout) is stream
    assert stream.getvalue() == EVIL


@pytest.mark.skipif(not shipped_models(), reason="the shipped model is not here")
def test_on_a_real_terminal(tmp_path: Path) -> None:
    """A module that prints while it is imported, under a check."""
    (tmp_path / "my_episode.py").write_text(
        f"print({EVIL!r})\nimport sys\nsys.stderr.write({EVIL!r})\n{EPISODE}"
    )
    (tmp_path / "tasks.jsonl").write_text('{"question": "a"}\n')
    (tmp_path / "train.toml").write_text(CONFIG)
    with Session(tmp_path, arguments=["-m", "loops_tui", "check", "train.toml"]) as session:
        session.until("The check found nothing wrong.")
    sent = bytes(session.out).decode(errors="replace")
    assert harmless(sent)
    assert sent.count("hello") == 2
