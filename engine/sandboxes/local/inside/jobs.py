"""A command as its keeper sees it: its process, its streams, its deadline, and what it said."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from .capture import Capture
from .command import Belongings
from .frames import Message

_READ_BYTES = 1 << 17
_LAST_BYTES = 1 << 21


class Job:
    """One running command; times are monotonic seconds."""

    def __init__(self, header: Message, pid: int, out: int, err: int | None, belongings: Belongings) -> None:
        self.ident: int = header["id"]
        self.pid = pid
        self.streams = [out] if err is None else [out, err]
        self.belongings = belongings
        self.status: int | None = None
        self.ends_at: float | None = time.monotonic() + header["timeout"]
        #: Whether a helper is ending the command's processes right now.
        self.ending = False
        self._started = time.monotonic()
        self._timed_out = False
        self._cancelled = False
        limit = header["max_output"]
        self._captures = {fd: Capture(limit) for fd in self.streams}
        self._order = [self._captures[fd] for fd in self.streams]
        self._both = Capture(limit)

    @property
    def over(self) -> bool:
        """Whether the command has ended and nobody is busy with what it started."""
        return self.status is not None and not self.ending

    def cut(self, *, timed_out: bool) -> None:
        """The command is being ended, by its deadline or on request."""
        self.ends_at = None
        self.ending = True
        self._timed_out = timed_out
        self._cancelled = not timed_out

    # -- streams ------------------------------------------------------------------------------------------------

    def read(self, fd: int) -> bool:
        """Take what a stream holds; False at its end."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self._captures[fd].add(data)
        if len(self._order) > 1:
            self._both.add(data)
        return True

    def drain(self, fd: int) -> bool:
        """Take what is left in a stream, within reason; False at its end."""
        capture = self._captures[fd]
        end = capture.total + _LAST_BYTES
        while capture.total < end:
            before = capture.total
            if not self.read(fd):
                return False
            if capture.total == before:
                break
        return True

    def close(self, fd: int) -> None:
        os.close(fd)
        self.streams.remove(fd)

    # -- result -------------------------------------------------------------------------------------------------

    def result(self) -> tuple[Message, bytes]:
        """The answer for the engine."""
        header: dict[str, Any] = {"id": self.ident, "seconds": time.monotonic() - self._started}
        code: int | None
        if self.status is None:
            header["status"], code = "killed", 128 + signal.SIGKILL
        elif os.WIFSIGNALED(self.status):
            header["status"], code = "killed", 128 + os.WTERMSIG(self.status)
        else:
            header["status"], code = "completed", os.WEXITSTATUS(self.status)
        if self._cancelled:
            header["status"] = "killed"
        if self._timed_out:
            header["status"], code = "timed_out", None
        header["exit_code"] = code
        captures = list(self._order)
        if len(captures) > 1 and all(capture.total for capture in captures):
            captures.append(self._both)
        pieces = [capture.parts() for capture in captures]
        header["parts"] = [
            [len(head), len(tail), c.dropped] for (head, tail), c in zip(pieces, captures, strict=True)
        ]
        return header, b"".join(piece for pair in pieces for piece in pair)
