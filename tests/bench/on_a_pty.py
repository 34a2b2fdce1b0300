"""A program on a pseudo-terminal, for measuring what a person would see: when which bytes arrive."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.terminal.picture import Picture

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 120.0  # a bound, not a measure


class OnAPty:
    """``with OnAPty(arguments, cwd) as program:`` starts ``python arguments…``; ``out`` is every byte it has sent."""

    def __init__(self, arguments: Sequence[str], cwd: Path, size: tuple[int, int] = (120, 40)) -> None:
        self._arguments = list(arguments)
        self._cwd = cwd
        self._size = size
        self.out = bytearray()
        self.picture = Picture(*size)
        self._drawn = 0

    def __enter__(self) -> OnAPty:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self._size[1], self._size[0], 0, 0))
        environ = {
            name: value for name, value in os.environ.items() if name not in ("TMUX", "COLUMNS", "LINES")
        }
        environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *self._arguments],
            stdin=slave, stdout=slave, stderr=slave, cwd=self._cwd, env=environ, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_SECONDS)
        os.close(self._master)

    def read(self, seconds: float) -> bytes:
        """What comes within ``seconds``, as soon as anything comes."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # Linux says EIO where nobody holds the other end any more
            raise TimeoutError(f"it has ended; the last was {bytes(self.out[-2000:])!r}") from None
        self.out += data
        return data

    def shows(self, text: str) -> bool:
        """Whether this is on the screen. (Only what differs is sent, so the bytes alone do not say.)"""
        self.picture.feed_bytes(bytes(self.out[self._drawn :]))
        self._drawn = len(self.out)
        return text in self.picture.text

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, text: str) -> None:
        """Wait until this is on the screen. Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.shows(text):
            self.read(0.2)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} never came; on the screen is\n{self.picture.text}")

    def queued_seconds(self) -> float:
        """How long its main thread, which paints, has been ready to run while other processes had the processors
        (Linux; 0 elsewhere). On a busy machine that is most of any latency, and none of the program's own doing."""
        stat = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/schedstat")
        return int(stat.read_text().split()[1]) / 1e9 if stat.exists() else 0.0

    def cpu_seconds(self) -> float:
        """Processor time that its threads have used so far (Linux; 0 elsewhere)."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        if not tasks.exists():
            return 0.0
        return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
