"""What background processes still say after their command has ended.

Their streams stay open: a process whose output leads nowhere dies when it next writes. It is read and dropped, slowly:
a flood in the background is held back by its own full pipe instead of keeping a processor busy.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Callable

_MOST = 128
_READ_BYTES = 1 << 18
_REST_SECONDS = 0.1


class Leftovers:
    """Streams, each either watched by the selector or resting until a time (monotonic seconds)."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._resting: dict[int, float | None] = {}

    def take(self, fd: int) -> None:
        """Look after a stream from now on; the oldest is closed where there are too many."""
        self._resting[fd] = None
        self._selector.register(fd, selectors.EVENT_READ, self._dropper(fd))
        while len(self._resting) > _MOST:
            self._forget(next(iter(self._resting)))

    def times(self) -> list[float]:
        """When something is due."""
        return [until for until in self._resting.values() if until is not None]

    def on_time(self, now: float) -> None:
        """Watch those again that have rested."""
        for fd, until in self._resting.items():
            if until is not None and now >= until:
                self._resting[fd] = None
                self._selector.register(fd, selectors.EVENT_READ, self._dropper(fd))

    def _dropper(self, fd: int) -> Callable[[int], None]:
        def drop(_: int) -> None:
            if fd not in self._resting or self._resting[fd] is not None:
                return
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._forget(fd)
                return
            self._selector.unregister(fd)
            self._resting[fd] = time.monotonic() + _REST_SECONDS

        return drop

    def _forget(self, fd: int) -> None:
        del self._resting[fd]
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)
        os.close(fd)
