"""``run`` on a real terminal: ctrl+c, and a terminal that hangs up."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from engine.store import Store
from engine.store.rows import RunState
from tests.hosting.stand_ins import make_project

ROOT = Path(__file__).resolve().parents[2]


class OnTerminal:
    """The command on a pseudo terminal; it is the session's leader, as under ssh."""

    def __init__(self, project_dir: Path) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEAD, "run", "direct/train.toml"],
            cwd=project_dir, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(slave)
        self.seen = b""

    def wait_for(self, text: bytes) -> None:
        while text not in self.seen:
            self.seen += os.read(self.master, 65536)

    def rest(self) -> bytes:
        while True:
            try:
                more = os.read(self.master, 65536)
            except OSError:  # Linux says EIO where the other end is closed
                return self.seen
            if not more:
                return self.seen
            self.seen += more


_LEAD = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
runpy.run_module("tests.cli.driver", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def terminal(tmp_path: Path) -> OnTerminal:
    make_project(tmp_path).close()
    return OnTerminal(tmp_path)


def test_ctrl_c_drains_and_says_so(terminal: OnTerminal, tmp_path: Path) -> None:
    terminal.wait_for(b"running")
    os.write(terminal.master, b"\x03")
    terminal.wait_for(b"ctrl+c: stopping after the step in hand; once more to abort")
    said = terminal.rest()
    assert terminal.process.wait(60) == 130
    assert b"Reward: 0.500 first, 0.500 last, over 1 step" in said
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")  # the cursor is back
    with Store.open(tmp_path) as store:
        assert store.reader().runs()[0].state is RunState.STOPPED


def test_a_terminal_that_hangs_up(terminal: OnTerminal, tmp_path: Path) -> None:
    terminal.wait_for(b"running")
    os.close(terminal.master)
    assert terminal.process.wait(60) == 129
    with Store.open(tmp_path) as store:
        run = store.reader().runs()[0]
    assert (run.state, run.step) == (RunState.STOPPED, 1)
