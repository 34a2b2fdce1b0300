"""Signals of a process that hosts a run without a screen: the first drains, the second aborts.

They are carried out in a thread of their own: an episode that blocks the loop must not hold them up, and a handler
that took the run's lock or wrote to standard error itself could meet the very code that it interrupted there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from engine.store.rows import RunState

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

DONE, FAILED, BAD_INPUT, STOPPED = 0, 1, 2, 3

_GRACE_SECONDS = 1.0
"""How long a loop may leave the second signal unseen, once a third one has come, before it counts as blocked."""
_JOIN_SECONDS = 5.0


class SignalDrain:
    """Counts the signals that arrive: ``drain(name)`` is called for the first, ``force(name)`` for the second.

    ``give_up(name)`` is called for a later one, where the loop has not come round since the one before it.
    """

    def __init__(
        self,
        drain: Callable[[str], None],
        force: Callable[[str], None],
        give_up: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._drain = drain
        self._force = force
        self._give_up = give_up
        self.first: int | None = None
        self._seen: threading.Event | None = None

    @property
    def status(self) -> int | None:
        """The exit status that the first signal asks for (128 + its number), or None."""
        return None if self.first is None else 128 + self.first

    def receive(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        """One signal has come. Not to be called on the loop."""
        name = "ctrl+c" if number == signal.SIGINT else signal.Signals(number).name
        if self.first is None:
            self.first = number
            self._drain(name)
            return
        before, self._seen = self._seen, threading.Event()
        with suppress(RuntimeError):  # closed: the process is ending already
            loop.call_soon_threadsafe(self._seen.set)
        if before is None:
            self._force(name)
        elif not before.wait(_GRACE_SECONDS):
            self._give_up(name)


@contextmanager
def signals_to(drain: SignalDrain, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Send this process's ending signals to ``drain``. Only on the main thread, which runs ``loop``."""
    # A handler in Python waits until the main thread is in Python again. Whatever holds that one, a computation in C or
    # a sleep that began as the signal came, the number is in this pipe at once.
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def carry_out() -> None:
        while numbers := os.read(reading, 64):
            for number in numbers:
                if number in SIGNALS:
                    drain.receive(number, loop)

    def receive(number: int, _: FrameType | None) -> None:
        """Somebody else may have put a pipe of their own there, as a loop's ``add_signal_handler`` does."""
        theirs = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if theirs != writing:
            signal.set_wakeup_fd(theirs)
            os.write(writing, bytes([number]))

    thread = threading.Thread(target=carry_out, name="signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, receive) for number in SIGNALS}
    fd_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(fd_before)
        os.close(writing)
        thread.join(_JOIN_SECONDS)
        if not thread.is_alive():
            os.close(reading)


def exit_status(state: RunState, signalled: int | None = None) -> int:
    """0 done, 1 failed, 3 stopped or interrupted before the end, 128+n where a signal asked for that end."""
    if state is RunState.DONE:
        return DONE
    if state is RunState.FAILED:
        return FAILED
    return STOPPED if signalled is None else signalled
