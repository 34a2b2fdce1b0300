"""The process that computes passes, so that decoding has a core of its own.

    python -m engine.local_loops.pass_worker DESCRIPTOR

Answers one message at a time on the connection that the server handed down, and ends with it: a server that is killed
leaves nothing behind. Several passes may be open at once; each message moves one of them by a slice. A second thread
would not do: decoding a small model is many short array operations, and two threads of such take turns at the
interpreter's lock.
"""

from __future__ import annotations

import pickle
import signal
import sys
import traceback
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.local_loops.compute.interface import Backend
from engine.local_loops.compute.numpy_backend import load_backend
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
from engine.local_loops.passes import compute


class PassWorker:
    """Open passes and the models they are computed on."""

    def __init__(self) -> None:
        self._backends: dict[Path, Backend] = {}
        #: The merged weights of the adapter that was used last, and its key; an open pass holds its own besides.
        self._weights: tuple[int, Any] | None = None
        self._open: dict[int, Generator[None, None, PassResult]] = {}

    def answer(self, message: Message) -> Answer:
        """Do what a message asks for; whatever it raises is the answer."""
        try:
            match message:
                case Load(directory):
                    self._backend(directory)
                case Begin(number, wanted):
                    self._open[number] = self._begin(wanted)
                case Advance(number):
                    return self._advance(number)
                case Drop(number):
                    self._open.pop(number, None)
        except Exception as error:  # noqa: BLE001  the server raises it where the operation's caller is answered
            return Failed(_portable(error))
        return None

    def _backend(self, directory: Path) -> Backend:
        if directory not in self._backends:
            self._backends[directory] = load_backend(directory)
        return self._backends[directory]

    def _begin(self, wanted: Pass) -> Generator[None, None, PassResult]:
        backend = self._backend(wanted.directory)
        if self._weights is None or self._weights[0] != wanted.adapter_key:
            self._weights = None  # first: both at once would be a third copy of a large model
            self._weights = wanted.adapter_key, backend.weights(wanted.adapter)
        return compute(wanted, backend, self._weights[1])

    def _advance(self, number: int) -> PassResult | None:
        begun = self._open.pop(number, None)
        if begun is None:
            raise PassesLost("the process that computes passes ended, and another has taken its place")
        try:
            next(begun)
        except StopIteration as end:
            return end.value
        self._open[number] = begun
        return None


def _portable(error: Exception) -> Exception:
    """The error as another process can raise it, with the place where it happened."""
    error.add_note("in the process that computes passes:\n" + traceback.format_exc().rstrip())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  whatever its class does when it is copied, its text is what matters
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def serve(connection: Connection) -> None:
    """Answer messages until the other end is closed."""
    worker = PassWorker()
    while True:
        try:
            message: Message = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            connection.send(worker.answer(message))
        except (BrokenPipeError, ConnectionResetError):
            return


def main() -> None:
    # ctrl+c is for the server, whose end is this process's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(int(sys.argv[1])) as connection:
        serve(connection)


if __name__ == "__main__":
    main()
