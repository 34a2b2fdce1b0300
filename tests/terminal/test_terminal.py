"""The app on a real terminal: what Pilot cannot see."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from engine.store.rows import AttemptState, RunState, TranscriptRow
from engine.store.store import Store
from tests.terminal.session import ALT_SCREEN_OFF, Session

LIVE = "20261129-143501-k3f9"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_gives_the_terminal_back(project: Path, number: signal.Signals, status: int) -> None:
    with Session(project) as session:
        session.until("tool_agent")
        session.signal(number)
        assert session.end() == status
        session.assert_restored()


def test_a_signal_drains_the_run_that_lives_here(project: Path) -> None:
    with Session(project, "live") as session:
        session.until("tool_agent")
        session.signal(signal.SIGTERM)
        assert session.end() == 143
        session.assert_restored()
        told = session.out[session.out.rindex(ALT_SCREEN_OFF) :]
        assert b"stopping pretended-run after the step in hand" in told
    assert (project / "notes").read_text().split() == ["stop", "close"]


def test_a_hangup_drains_without_a_word(project: Path) -> None:
    with Session(project, "live") as session:
        session.until("tool_agent")
        session.signal(signal.SIGHUP)
        assert session.end() == 129
        assert b"stopping" not in session.out[session.out.rindex(ALT_SCREEN_OFF) :]
    assert (project / "notes").read_text().split() == ["stop", "close"]


@pytest.mark.parametrize(("setting", "said"), [("", ["hand-over", "close"]), ("drain", ["stop", "close"])])
def test_a_hangup_hands_a_run_over_where_that_can_be(project: Path, setting: str, said: list[str]) -> None:
    with Session(project, "movable", environ={"LOOPS_TUI_ON_HANGUP": setting}) as session:
        session.until("tool_agent")
        session.hang_up()
        assert session.process.wait(60) == 129
    assert (project / "notes").read_text().split() == said


def test_leaving_a_run_to_a_process_of_its_own_says_how_to_find_it(project: Path) -> None:
    with Session(project, "movable") as session:
        session.until("tool_agent")
        session.press(b"q")
        session.until("in a process of its own")
        session.press(b"d")
        assert session.end() == 0
        session.assert_restored()
        told = session.out[session.out.rindex(ALT_SCREEN_OFF) :]
        assert b"pretended-run goes on in a process of its own: `loops-tui watch pretended-run`" in told


def test_a_second_ctrl_c_asks_to_abort(project: Path) -> None:
    with Session(project, "stubborn") as session:
        session.until("tool_agent")
        session.press(b"\x03")
        session.until("stopping after this step")
        session.press(b"\x03")
        session.until("Abort now?")
        session.press(b"y")
        assert session.end() == 130
        session.assert_restored()
    assert (project / "notes").read_text().split() == ["stop", "abort", "close"]


@pytest.mark.parametrize(("keys", "status"), [(b"q", 0), (b"\x03", 130)])
def test_keys_that_leave_give_the_terminal_back(project: Path, keys: bytes, status: int) -> None:
    with Session(project) as session:
        session.until("tool_agent")
        session.press(keys)
        assert session.end() == status
        session.assert_restored()


def test_writers_behind_the_screen_s_back_end_in_the_log(project: Path) -> None:
    with Session(project, "noisy") as session:
        session.until("tool_agent")
        log = project / ".loops" / "app.log"
        deadline = time.monotonic() + 60
        noises = (
            "ON-FD-1",
            "ON-FD-2",
            "OF-A-HANDLER",
            "ON-THE-STREAM-OF-BEFORE",
            "OF-A-CHILD\n",
            "OF-A-CHILD-S-ERRORS",
        )
        while not (log.exists() and all(f"NOISE-{noise}" in log.read_text() for noise in noises)):
            session.read(0.1)
            assert time.monotonic() < deadline, log.read_text()
        session.press(b"q")
        assert session.end() == 0
        assert b"NOISE" not in session.out


def test_a_defect_ends_in_one_sentence_without_local_variables(project: Path) -> None:
    with Session(project, "broken") as session:
        session.until("tool_agent")
        assert session.end() == 1
        session.assert_restored()
        told = bytes(session.out[session.out.rindex(ALT_SCREEN_OFF) :])
        assert b"the app ended by an error of its own: ZeroDivisionError" in told
        assert b"sk-secret-in-a-local" not in session.out
        assert b"Traceback" not in told
    log = (project / ".loops" / "app.log").read_text()
    assert "ZeroDivisionError" in log
    assert "sk-secret-in-a-local" not in log


def test_hostile_text_sends_no_sequence_of_its_own(project: Path) -> None:
    evil = "\x1b]52;c;RVZJTA==\x07\x1b[6n\x1b]0;EVIL\x07\x9b31m\x1bPEVIL\x1b\\ MARK"
    with Store.open(project) as store:
        recorder = store.recorder(LIVE, host_id="host-1", files=False)
        recorder.run(name=evil)
        recorder.log("info", "run", evil)
        turns = [
            {"role": "user", "content": evil},
            {"role": "assistant", "content": evil + "\n" + "z" * 500_000},
        ]
        row = store.reader().attempts(LIVE, 124)[0]
        row.state, row.reward, row.ended_at, row.error = AttemptState.DONE, 1.0, 1.0, evil
        recorder.attempt(row)
        recorder.transcript(TranscriptRow(LIVE, 124, 0, evil, 1.0, evil, turns))
        recorder.flush_blocking()
    with Session(project) as session:
        session.until("␛]52…")
        session.press(b"\r")
        session.until("policy")
        session.until("Attempts of group 124")
        session.press(b"\r")
        session.until_quiet(0.4)  # between two ticks of the clocks
        session.press(b"\r")
        session.until("1 user")
        session.press(b"t")
        session.until_quiet(0.4)  # between two ticks of the clocks
        session.press(b"q")
        assert session.end() == 0
        assert b"52;c" not in session.out
        assert b"\x1b[6n" not in session.out
        assert b"RVZJTA" not in session.out
        assert b"\x1bP" not in session.out.replace(b"\x1bP+q", b"").replace(b"\x1bP>|", b"")
        assert not re.search(rb"\x1b\]0;EVIL", session.out)


def test_an_idle_screen_sends_nothing(project: Path) -> None:
    with Store.open(project) as store:
        store.end_run(LIVE, "host-1", RunState.DONE, None)
    with Session(project) as session:
        session.until("tool_agent")
        session.until_quiet()
        for key in (b"", b"\r"):
            session.press(key or b"\x1b[B")
            session.until_quiet()
            before = len(session.out)
            deadline = time.monotonic() + 3.0
            while time.monotonic() < deadline:
                session.read(0.5)
            assert len(session.out) - before == 0
        session.press(b"q")
        assert session.end() == 0


def test_without_a_terminal_it_says_so() -> None:
    from loops_tui.terminal import is_terminal

    assert not is_terminal() or os.isatty(0)


def test_the_app_ends_when_its_terminal_goes_without_a_signal(project: Path) -> None:
    with Session(project) as session:
        session.until("tool_agent")
        # The kernel's hangup is what a closed window or a dropped connection sends.
        waiter = threading.Thread(target=session.process.wait, args=(30,))
        waiter.start()
        session.hang_up()
        waiter.join(120)
        assert session.process.returncode == 129
