"""Signals of a process that hosts a run without a screen: the first drains, the second aborts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.store.rows import RunState

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 3


class SignalDrain:
    """Counts the signals that arrive: ``drain(name)`` is called for the first, ``force(name)`` for the second."""

    def __init__(self, drain: Callable[[str], None], force: Callable[[str], None]) -> None:
        self._drain = drain
        self._force = force
        self.first: int | None = None
        self._forced = False

    @property
    def status(self) -> int | None:
        """The exit status that the first signal asks for (128 + its number), or None."""
        return None if self.first is None else 128 + self.first

    def receive(self, number: int) -> None:
        """One signal has come."""
        name = "ctrl+c" if number == signal.SIGINT else signal.Signals(number).name
        if self.first is None:
            self.first = number
            self._drain(name)
        elif not self._forced:
            self._forced = True
            self._force(name)


@contextmanager
def signals_to(drain: SignalDrain, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Send this process's ending signals to ``drain``, on the main thread's loop."""
    for number in SIGNALS:
        loop.add_signal_handler(number, drain.receive, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def exit_status(state: RunState, signalled: int | None = None) -> int:
    """0 done, 1 failed, 3 stopped or interrupted before the end, 128+n where a signal asked for that end."""
    if state is RunState.DONE:
        return DONE
    if state is RunState.FAILED:
        return FAILED
    return STOPPED if signalled is None else signalled
