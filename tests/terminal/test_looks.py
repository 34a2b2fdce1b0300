"""What is sent to a terminal that cannot do everything: ASCII, no colours, no mouse, another size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.terminal.session import Session

COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38;[25]|48;[25])(?:;[0-9;]*)?m")
MOUSE_ON = b"\x1b[?1000h"


def look_around(session: Session) -> None:
    """Through the screens that draw the most."""
    session.until("tool_agent")
    session.press(b"\r")
    session.until("policy")
    session.press(b"?")
    session.until("Keys")
    session.press(b"\x1b")
    session.until_quiet(0.4)
    session.press(b"4")
    session.until("Sandboxes")
    session.until_quiet(0.4)


def leave(session: Session) -> None:
    session.press(b"q")
    assert session.end() == 0
    session.assert_restored()


@pytest.mark.parametrize("environ", [{"LOOPS_TUI_ASCII": "1"}, {"LC_ALL": "de_DE.ISO-8859-1"}])
def test_ascii_mode_sends_nothing_else(project: Path, environ: dict[str, str]) -> None:
    with Session(project, environ=environ) as session:
        look_around(session)
        assert bytes(session.out).isascii()
        assert b"-----" in session.out
        leave(session)


def test_no_color_sends_no_colour(project: Path) -> None:
    with Session(project, environ={"NO_COLOR": "1"}) as session:
        look_around(session)
        leave(session)
        assert COLOUR.findall(bytes(session.out)) == []
        assert re.search(rb"\x1b\[(?:[0-9];)*7;", session.out), "the cursor shows by being reversed"


def test_ansi_themes_send_the_terminal_s_own_colours_only(project: Path) -> None:
    with Session(project, environ={"LOOPS_TUI_THEME": "ansi-dark"}) as session:
        look_around(session)
        leave(session)
        assert not re.search(rb"[34]8;2;", session.out)
        assert re.search(rb"\x1b\[[0-9;]*3[1-7]", session.out)


@pytest.mark.parametrize(("environ", "taken"), [({}, True), ({"LOOPS_TUI_MOUSE": "0"}, False)])
def test_the_mouse_is_left_alone_where_asked(project: Path, environ: dict[str, str], taken: bool) -> None:
    with Session(project, environ=environ) as session:
        session.until("tool_agent")
        assert (MOUSE_ON in session.out) is taken
        session.press(b"q")
        assert session.end() == 0


def test_a_click_chooses_a_run(project: Path) -> None:
    with Session(project) as session:
        session.until("tool_agent")
        session.until_quiet(0.4)
        since = len(session.out)
        session.press(b"\x1b[<0;20;7M\x1b[<0;20;7m")  # the run that was interrupted
        session.until("20261128-174502-q9aa", since=since)
        leave(session)


def test_a_terminal_that_shrinks_and_grows_loses_nothing(project: Path) -> None:
    with Session(project, size=(200, 60)) as session:
        session.until("tool_agent")
        session.press(b"/")
        session.until("art of a name")  # the cursor stands on the first letter
        session.press(b"tool\r")
        session.until("filter “tool”")
        session.until_quiet(0.4)
        for columns, rows in ((80, 24), (40, 10), (200, 60), (80, 24)):
            since = len(session.out)
            session.resize(columns, rows)
            session.until("Runs", since=since)
            session.until_quiet(0.4)
            assert session.process.poll() is None
        since = len(session.out)
        session.resize(200, 60)
        session.until("filter “tool”", since=since)
        session.press(b"\x1b")
        session.until_quiet(0.4)  # an escape and a letter at once are one key to a terminal
        leave(session)
