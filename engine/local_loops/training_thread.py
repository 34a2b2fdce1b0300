"""The thread that trains: operations are generators that yield between slices.

First in, first out within a run, and runs take turns slice by slice. The arithmetic of a batch is done in another
process (:mod:`.pass_process`); what is left here is short.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

#: A training operation: yields between slices, returns its result.
Slices = Generator[None, None, Any]


@dataclass(slots=True)
class Work:
    """A training operation in the queue. Exactly one of the callbacks is called, from the thread."""

    owner: str
    slices: Slices
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]


@dataclass(slots=True)
class TrainingStats:
    """What the thread has done; ``train_seconds`` counts the waits for the process that computes."""

    train_slices: int = 0
    train_seconds: float = 0.0


class TrainingThread:
    """Owns the thread. The public methods may be called from any other."""

    def __init__(self) -> None:
        self.stats = TrainingStats()
        self._changed = threading.Condition()
        self._work: OrderedDict[str, deque[Work]] = OrderedDict()
        #: Runs that were deactivated: what they still have here is refused.
        self._closed: dict[str, str] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End after the slice in hand and refuse what is left; False where the slice takes longer than that."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def submit(self, work: Work) -> None:
        """Queue an operation behind those of the same owner."""
        with self._changed:
            self._work.setdefault(work.owner, deque()).append(work)
            self._changed.notify()

    def close_owner(self, owner: str, reason: str) -> None:
        """Refuse what a run still has here, waiting or running, and whatever it sends later."""
        with self._changed:
            self._closed[owner] = reason

    # -- the thread itself ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            started = time.perf_counter()
            owner, queue = turn
            finished = self._slice(queue[0])
            self.stats.train_slices += 1
            self.stats.train_seconds += time.perf_counter() - started
            if finished:
                queue.popleft()
            self._put_back(owner, queue)
        self._refuse_everything()

    def _next(self) -> tuple[str, deque[Work]] | None:
        """Wait for work: the run whose turn it is, and its queue. None ends the thread."""
        with self._changed:
            while not self._stopping:
                if self._work:
                    return self._work.popitem(last=False)
                self._changed.wait()
            return None

    def _put_back(self, owner: str, queue: deque[Work]) -> None:
        """Behind the other runs: they take turns."""
        with self._changed:
            queue.extend(self._work.pop(owner, ()))
            if queue:
                self._work[owner] = queue

    def _slice(self, work: Work) -> bool:
        """Do the next slice of an operation; True when it has ended, in whatever way."""
        reason = self._closed.get(work.owner)
        if reason is not None:
            self._refuse(work, reason)
            return True
        try:
            next(work.slices)
        except StopIteration as end:
            self._conclude(work, end.value)
        except Exception as error:  # noqa: BLE001  the caller gets it; the thread must outlive any operation
            work.failed(error)
        else:
            return False
        return True

    @staticmethod
    def _conclude(work: Work, result: Any) -> None:
        try:
            work.done(result)
        except Exception as error:  # noqa: BLE001  a result that cannot be told is a failed operation
            work.failed(error)

    @staticmethod
    def _refuse(work: Work, reason: str) -> None:
        try:
            work.slices.close()
        finally:
            work.failed(RuntimeError(reason))

    def _refuse_everything(self) -> None:
        with self._changed:
            pending = [work for queue in self._work.values() for work in queue]
            self._work.clear()
        for work in pending:
            self._refuse(work, "server is shutting down")
