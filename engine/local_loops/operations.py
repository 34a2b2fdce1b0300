"""Operations of the trainer: accepted at once, done later, polled for their result.

The SDK repeats a submit with the same Idempotency-Key after a lost answer, so a key is accepted once per run and
answered with the same operation. Results stay readable, more than once, for at least an hour.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

KEEP_SECONDS = 3600.0
#: Results beyond this are dropped whatever their age, oldest first, so that a long run cannot fill the memory.
KEPT_BYTES = 1024 * 1024 * 1024


@dataclass(slots=True)
class Operation:
    """One accepted operation."""

    run_id: str
    operation_id: str
    name: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    body: bytes = b""
    finished_at: float = 0.0


class Operations:
    """The operations of all runs; used from the event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._operations: dict[tuple[str, str], Operation] = {}
        self._finished: deque[Operation] = deque()
        self._finished_bytes = 0
        self._closing = asyncio.Event()

    def accept(self, run_id: str, operation_id: str, name: str) -> tuple[Operation, bool]:
        """The operation of that key and whether it is new."""
        known = self._operations.get((run_id, operation_id))
        if known is not None:
            return known, False
        operation = Operation(run_id, operation_id, name)
        self._operations[(run_id, operation_id)] = operation
        return operation, True

    def finish(self, operation: Operation, body: bytes) -> None:
        """Store the answer and wake whoever polls for it."""
        if operation.done.is_set():
            return
        operation.body = body
        operation.finished_at = self._clock()
        operation.done.set()
        self._finished.append(operation)
        self._finished_bytes += len(body)
        self._expire()

    def find(self, run_id: str, operation_id: str) -> Operation | None:
        return self._operations.get((run_id, operation_id))

    async def wait(self, operation: Operation, hold: float) -> bool:
        """Hold until the operation is done (True), the hold is over, or the server closes (both False)."""
        if operation.done.is_set():
            return True
        waits = [asyncio.ensure_future(operation.done.wait()), asyncio.ensure_future(self._closing.wait())]
        try:
            await asyncio.wait(waits, timeout=hold, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return operation.done.is_set()

    def close(self) -> None:
        """Release every held poll: the server is ending."""
        self._closing.set()

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    def _expire(self) -> None:
        """Drop the oldest results that are past their time or over the memory bound."""
        now = self._clock()
        while self._finished:
            oldest = self._finished[0]
            if now - oldest.finished_at < KEEP_SECONDS and self._finished_bytes <= KEPT_BYTES:
                return
            self._finished.popleft()
            self._finished_bytes -= len(oldest.body)
            del self._operations[(oldest.run_id, oldest.operation_id)]
