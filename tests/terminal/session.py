"""An app in a process of its own, on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.terminal.picture import Picture

WAIT_SECONDS = 60.0  # a bound, not a measure: the machine may be busy
ROOT = Path(__file__).parents[2]

# What Textual switches on, and must have switched off when it is gone.
ALT_SCREEN_ON, ALT_SCREEN_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
MOUSE_OFF, CURSOR_ON, PASTE_OFF = b"\x1b[?1000l", b"\x1b[?25h", b"\x1b[?2004l"


class Session:
    """``with Session(project, "idle") as s:`` starts the app; ``s.out`` is every byte it has sent."""

    def __init__(
        self,
        project: Path,
        mode: str = "idle",
        size: tuple[int, int] = (120, 40),
        *,
        arguments: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """``arguments`` are Python's, for another program than the child; it runs in the project directory."""
        self._project = project
        self._arguments = arguments or ["-m", "tests.terminal.child", str(project), mode]
        self._size = size
        self._environ = dict(environ or {})
        self.out = bytearray()
        self.picture = Picture(*size)

    def __enter__(self) -> Session:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self._size[1], self._size[0], 0, 0))
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        environ = {
            name: value for name, value in os.environ.items() if name not in ("TMUX", "COLUMNS", "LINES")
        }
        environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        # What this machine's user has set for themselves is none of the tests' business.
        environ |= {
            "XDG_CONFIG_HOME": str(self._project / ".config"),
            "XDG_STATE_HOME": str(self._project / ".state"),
        }
        environ |= self._environ
        self.process = subprocess.Popen(
            [sys.executable, *self._arguments],
            stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=self._project, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,  # noqa: PLW1509  # no threads here yet
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_SECONDS)
        if self._master >= 0:
            os.close(self._master)
        os.close(self._slave)

    def hang_up(self) -> None:
        """Take the terminal away, as a closed window does."""
        os.close(self._master)
        self._master = -1

    def read(self, seconds: float) -> bytes:
        """What comes within ``seconds``, as soon as anything comes."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux says EIO where nobody holds the other end any more
            data = b""
        self.out += data
        self.picture.feed_bytes(data)
        return data

    def until(self, text: str, *, since: int = 0) -> None:
        """Wait until ``text`` is on the screen, or was sent in one piece (only what differs is sent at all)."""
        deadline = time.monotonic() + WAIT_SECONDS
        wanted = text.encode()
        while wanted not in self.out[since:]:
            self.read(0.2)
            if len(self.out) > since and text in self.picture.text:
                return
            assert time.monotonic() < deadline, (
                f"{text!r} was not sent; the end was {bytes(self.out[-2000:])!r}"
            )
            if self.process.poll() is not None and not self.read(0.2):
                assert wanted in self.out[since:], f"ended without {text!r}: {bytes(self.out[-2000:])!r}"

    def until_quiet(self, seconds: float = 1.5) -> None:
        """Wait until nothing has been sent for so long."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.read(seconds):
            assert time.monotonic() < deadline, "it never became quiet"

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the app is told as by any terminal."""
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.picture = Picture(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the process to end and read what it still had to say."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            self.read(0.1)
            assert time.monotonic() < deadline, "it did not end"
        while self.read(0.2):
            pass
        return self.process.returncode

    def assert_restored(self) -> None:
        """The terminal is as it was: the modes it was switched into are off, and the line discipline is back."""
        assert ALT_SCREEN_ON in self.out
        tail = self.out[self.out.rindex(ALT_SCREEN_ON) :]
        for off in (ALT_SCREEN_OFF, MOUSE_OFF, CURSOR_ON, PASTE_OFF):
            assert off in tail, off
        assert termios.tcgetattr(self._slave)[:4] == self.before[:4]
