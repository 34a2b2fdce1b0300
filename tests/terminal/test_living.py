"""Runs that train for real, and the terminals they are watched from: closing one, killing it, attaching another."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hosting.detach import detach_run
from engine.store.rows import RunState
from tests.terminal.session import ALT_SCREEN_OFF
from tests.terminal.watched import WAIT_SECONDS, Watched, app, hosting_app

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    project = Watched(tmp_path)
    yield project
    project.close()


def test_closing_the_terminal_moves_the_run(watched: Watched) -> None:
    with hosting_app(watched) as session:
        watched.until_steps(1, session)
        run_id, first_host = watched.run.run_id, watched.run.host_id
        session.hang_up()
        assert session.process.wait(WAIT_SECONDS) == 129
    run = watched.run
    assert (run.run_id, run.host_id != first_host) == (run_id, True)
    assert (watched.host.kind, run.state.final) == ("detached", False)
    watched.until_steps(run.step + 1)  # it goes on


def test_closing_the_terminal_ends_the_run_where_that_is_wished(watched: Watched) -> None:
    with hosting_app(watched, LOOPS_TUI_ON_HANGUP="drain") as session:
        watched.until_steps(1, session)
        session.hang_up()
        assert session.process.wait(WAIT_SECONDS) == 129
    assert watched.run.state is RunState.STOPPED


def test_a_run_left_running_is_found_again_and_stopped_from_another_terminal(watched: Watched) -> None:
    with hosting_app(watched) as session:
        watched.until_steps(1, session)
        session.press(b"q")
        session.until("in a process of its own")
        session.press(b"d")
        assert session.end() == 0
        session.assert_restored()
        told = bytes(session.out[session.out.rindex(ALT_SCREEN_OFF) :])
        assert f"{watched.run.run_id} goes on in a process of its own".encode() in told
    assert watched.host.kind == "detached"
    with app(watched) as session:
        session.until("● running")
        session.press(b"s")
        session.until("Stop this run?")
        session.press(b"y")
        watched.until(lambda: watched.run.state is RunState.STOPPED, "it stops", session)
        session.until("stopped")
        session.press(b"q")
        assert session.end() == 0


def test_a_second_app_sees_the_run_of_the_first_and_pauses_it(watched: Watched) -> None:
    with hosting_app(watched) as first:
        watched.until_steps(1, first)
        with app(watched) as second:
            second.until("● running")
            second.press(b"\r")
            second.until("policy")
            second.press(b"P")
            second.until("Pause this run?")
            second.press(b"y")
            watched.until(lambda: watched.run.state is RunState.PAUSED, "it pauses", first, second)
            first.until("paused")
            second.until("paused")
            second.press(b"q")
            assert second.end() == 0
        assert not watched.run.state.final, "the first one's run is none of the second one's to end"
        first.press(b"\x03")
        assert first.end() == 130
    assert watched.run.state is RunState.STOPPED


def test_a_host_that_is_killed_is_seen(watched: Watched) -> None:
    detach_run(watched.config, (), watched.path)
    watched.until_steps(1)
    with app(watched, "--readonly") as looking_on, app(watched) as session:
        looking_on.until("● running")
        session.until("● running")
        os.kill(watched.host.pid, signal.SIGKILL)
        session.until("! interrupted")
        looking_on.until("! interrupted")
        for each in (session, looking_on):
            each.press(b"q")
            assert each.end() == 0
            each.assert_restored()
    assert watched.run.state is RunState.INTERRUPTED


def test_an_app_that_is_killed_with_a_run_in_it_says_so_when_it_is_opened_again(watched: Watched) -> None:
    with hosting_app(watched) as session:
        watched.until_steps(1, session)
        session.signal(signal.SIGKILL)
        session.process.wait(WAIT_SECONDS)
    with app(watched) as session:
        session.until("! interrupted")
        session.press(b"q")
        assert session.end() == 0
        session.assert_restored()
    assert watched.run.state is RunState.INTERRUPTED
