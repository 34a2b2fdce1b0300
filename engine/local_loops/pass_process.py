"""The server's handle on the process that computes passes: started when it is first needed, and again when lost."""

from __future__ import annotations

import itertools
import logging
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from engine.local_loops.pass_messages import (
    Advance,
    Answer,
    Begin,
    Drop,
    Failed,
    Load,
    Message,
    Pass,
    PassesLost,
    PassResult,
)

log = logging.getLogger(__name__)

#: A slice is seconds of work, or as long as one datum and the model make it; a process that says nothing for longer
#: than this does not work any more.
ANSWER_SECONDS = 1800.0
#: A process that was killed has this long to be gone.
END_SECONDS = 5.0


class PassProcess:
    """Computes passes elsewhere. May be used from any thread; one message is on its way at a time.

    A message is answered within ``answer_seconds``, or its process is ended; the process's death ends the wait at once.
    """

    module = "engine.local_loops.pass_worker"  # what the child runs

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._turn = threading.Lock()  # held for one message and its answer
        self._guard = threading.Lock()  # held while a process is started or ended
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._closed = False

    def load(self, directory: Path) -> None:
        """Start the process and let it read a model, so that the first pass need not wait for either."""
        self._ask(Load(directory))

    def compute(self, wanted: Pass) -> Generator[None, None, PassResult]:
        """Compute a pass, yielding between slices; an abandoned generator drops it.

        It changes nothing, so it is begun anew once where its process is lost. Raises what the pass raised, and
        PassesLost when the process was lost again.
        """
        try:
            return (yield from self._attempt(wanted))
        except PassesLost as lost:
            if self._closed:
                raise
            log.warning("%s; the pass is computed again", lost)
        return (yield from self._attempt(wanted))

    def close(self) -> None:
        """End the process; whatever waits for it fails. Waits for its end, bounded."""
        with self._guard:
            self._closed = True
            process, self._process = self._process, None
            if process is None:
                return
            process.kill()
            process.wait(END_SECONDS)

    # -- one pass -----------------------------------------------------------------------------------------------

    def _attempt(self, wanted: Pass) -> Generator[None, None, PassResult]:
        number = next(self._numbers)
        self._ask(Begin(number, wanted))
        try:
            while (answer := self._ask(Advance(number))) is None:
                yield
        except GeneratorExit:
            with suppress(PassesLost):  # with its process the pass is gone as well
                self._ask(Drop(number))
            raise
        return answer

    def _ask(self, message: Message) -> PassResult | None:
        """Send a message and wait for its answer; raises what it raised there."""
        with self._turn:
            process, connection = self._running()
            try:
                connection.send(message)
                answer: Answer = connection.recv()
            except BlockingIOError as error:  # the bound that ``_start`` sets
                process.kill()
                process.wait(END_SECONDS)
                raise PassesLost(
                    f"the process that computes passes did not answer within {self._answer_seconds:g} s and was ended"
                ) from error
            except (EOFError, OSError) as error:
                raise self._lost(process) from error
        if isinstance(answer, Failed):
            raise answer.error
        return answer

    def _running(self) -> tuple[subprocess.Popen[bytes], Connection]:
        with self._guard:
            if self._closed:
                raise PassesLost("server is shutting down")
            if self._process is None or self._connection is None or self._process.poll() is not None:
                if self._connection is not None:
                    self._connection.close()
                self._process, self._connection = self._start()
            return self._process, self._connection

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = socket.socketpair()
        seconds, rest = divmod(self._answer_seconds, 1)
        bound = struct.pack("ll", int(seconds), int(rest * 1_000_000))  # a timeval
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, bound)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the server's own carries its first line and no more
            )
        return process, Connection(ours.detach())

    def _lost(self, process: subprocess.Popen[bytes]) -> PassesLost:
        if self._closed:
            return PassesLost("server is shutting down")
        try:
            status = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # it has closed its end and does not go: a new one takes its place
            status = process.wait(END_SECONDS)
        if status == -signal.SIGKILL:
            how = "was killed; the memory may be full"
        else:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return PassesLost(f"the process that computes passes {how}")
