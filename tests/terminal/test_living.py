"""Runs that train for real, and the terminals they are watched from: closing one, killing it, attaching another."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.config.bundled import examples_dir
from engine.hosting.detach import detach_run
from engine.store.processes import same_process
from engine.store.rows import HostRow, RunRow, RunState
from engine.store.store import Store
from tests.terminal.session import ALT_SCREEN_OFF, Session

WAIT_SECONDS = 90.0  # a bound, not a measure
pytestmark = pytest.mark.timeout(400)


class Watched:
    """A project with an example that trains for hours, and a look into its store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        examples = examples_dir()
        assert examples is not None
        shutil.copytree(examples / "in_process_direct", path / "in_process_direct")
        config = path / "in_process_direct" / "train.toml"
        config.write_text(config.read_text().replace("max_steps = 16", "max_steps = 5000"))
        self.config = config
        self._store = Store.open(path)
        self._reader = self._store.reader()

    @property
    def run(self) -> RunRow:
        runs = self._reader.runs()
        assert len(runs) <= 1, "one run, wherever it lives"
        return runs[0]

    @property
    def host(self) -> HostRow:
        host = self._reader.host(self.run.host_id)
        assert host is not None
        return host

    def until(self, true: Callable[[], bool], what: str, *sessions: Session) -> None:
        """Wait until the store says so; terminals are read meanwhile, so that nobody waits to write."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not true():
            for session in sessions:
                session.read(0.05)
            if not sessions:
                time.sleep(0.05)
            shown = bytes(sessions[0].out[-1500:]) if sessions else b""
            assert time.monotonic() < deadline, f"never came true: {what}; {self._reader.runs()} {shown!r}"

    def until_steps(self, number: int, *sessions: Session) -> None:
        self.until(
            lambda: bool(self._reader.runs()) and self.run.step >= number, f"{number} steps", *sessions
        )

    def close(self) -> None:
        """End whatever still runs here."""
        for run in self._reader.runs():
            host = self._reader.host(run.host_id)
            if run.state.final or host is None or not same_process(host.pid, host.pid_started):
                continue
            self._store.request(run.run_id, "abort")
            self.until(lambda run_id=run.run_id: self._reader.run(run_id).state.final, "it is aborted")
        self._store.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    project = Watched(tmp_path)
    yield project
    project.close()


def hosting_app(project: Watched, **environ: str) -> Session:
    """The program with the run in it."""
    arguments = ["-m", "loops_tui", "demo", "--dir", str(project.path)]
    return Session(project.path, arguments=arguments, environ=environ)


def app(project: Watched, *switches: str) -> Session:
    """The program, opened on the project by somebody else."""
    return Session(project.path, arguments=["-m", "loops_tui", *switches])


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
