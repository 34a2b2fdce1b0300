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

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 120.0  # a bound, not a measure


class OnAPty:
    """``with OnAPty(arguments, cwd) as program:`` starts ``python arguments…``; ``out`` is every byte it has sent."""

    def __init__(self, arguments: Sequence[str], cwd: Path, size: tuple[int, int] = (120, 40)) -> None:
        self._arguments = list(arguments)
        self._cwd = cwd
        self._size = size
        self.out = bytearray()

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

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def until(self, text: bytes, since: int = 0) -> None:
        """Wait until these bytes have come. Raises TimeoutError."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.out[since:]:
            self.read(0.2)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} never came; the last was {bytes(self.out[-500:])!r}")

    def cpu_seconds(self) -> float:
        """Processor time that its threads have used so far (Linux; 0 elsewhere)."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        if not tasks.exists():
            return 0.0
        return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
