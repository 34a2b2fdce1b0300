"""One thread with one connection that writes for the whole process.

Engine code hands rows over and never waits; rows with one key that meet in the queue become one write. A failing
disk or a locked file is retried for as long as the process lives; after ``GRACE_SECONDS`` it is reported, and
whoever writes on is told so instead of filling the memory.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, Self

from engine.store.errors import PartLost, StoreError, explain
from engine.store.schema import open_database

MAX_DELAY_SECONDS = 0.25
"""A row is in the file this long after it was handed over, at the latest."""
GRACE_SECONDS = 10.0
"""Failures that last longer are reported."""
MAX_PENDING = 50_000
"""Rows that may wait; a healthy writer never has a tenth of them."""
_RETRY_SECONDS = 0.5


class Write(Protocol):
    """A change that waits in the queue."""

    def prepare(self) -> None:
        """Encode, before the transaction begins. Raises for what can never be stored."""
        ...

    def apply(self, connection: sqlite3.Connection) -> None:
        """Execute inside the transaction."""
        ...

    def after(self, older: Self) -> Self:
        """The one write that stands for an older one with the same key and this one."""
        ...


class Writer:
    """See the module. ``listeners`` are told of troubles from the writer's thread, once for each.

    ``after_commit`` is called there too, after each batch, and may read (run directories are written by it). Nobody
    who waits for a row waits for that as well.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listeners: list[Callable[[StoreError], None]] = []
        self.after_commit: list[Callable[[sqlite3.Connection], None]] = []
        self._max_delay = MAX_DELAY_SECONDS
        self._max_pending = MAX_PENDING
        self._grace = GRACE_SECONDS
        self._wake = threading.Condition()
        self._pending: dict[Hashable, Any] = {}
        self._calls: deque[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]] = deque()
        self._waiters: list[Future[None]] = []
        self._due: float | None = None  # when the oldest pending row must be written (monotonic)
        self._urgent = False
        self._closing = False
        self._ended = False
        self._failing_since: float | None = None
        self._error: StoreError | None = None
        self._lost: list[StoreError] = []
        self._connection = open_database(path)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def error(self) -> StoreError | None:
        """What keeps the writer from writing, if it lasts longer than the grace time."""
        return self._error

    def put(self, key: Hashable, write: Write, *, urgent: bool = False) -> None:
        """Hand a write over; ``urgent`` ones are committed at once and survive a power cut.

        Raises StoreError where the store is closed, or has failed for so long that rows would pile up.
        """
        with self._wake:
            if self._closing:
                raise StoreError(f"store: {self.path} is closed already; nothing more can be recorded")
            if self._error is not None:
                raise StoreError(str(self._error))
            older = self._pending.get(key)
            if older is None and len(self._pending) >= self._max_pending:
                raise StoreError(
                    f"store: {len(self._pending)} rows wait for {self.path}; the disk does not keep up"
                )
            self._pending[key] = write if older is None else write.after(older)
            if self._due is None:
                self._due = time.monotonic() + self._max_delay
                self._wake.notify()
            if urgent and not self._urgent:
                self._urgent = True
                self._wake.notify()

    def submit[T](self, act: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run ``act`` in a transaction of its own, at once, durably. The future may raise StoreError."""
        future: Future[T] = Future()
        with self._wake:
            if self._closing:
                raise StoreError(f"store: {self.path} is closed already")
            self._calls.append((act, future))
            self._wake.notify()
        return future

    def call[T](self, act: Callable[[sqlite3.Connection], T], timeout: float = 30.0) -> T:
        """As ``submit``, and wait. Raises StoreError; not to be called from an event loop that must stay quick."""
        future = self.submit(act)
        try:
            return future.result(timeout)
        except TimeoutError as error:
            if future.done():
                raise
            raise StoreError(f"store: {self.path} did not answer within {timeout:.0f} s") from error

    def flush(self) -> Future[None]:
        """A future that is done when everything handed over before is in the file. It may raise StoreError."""
        future: Future[None] = Future()
        with self._wake:
            if self._ended:
                raise StoreError(f"store: {self.path} is closed already")
            self._waiters.append(future)
            self._wake.notify()
        return future

    def close(self, timeout: float = 15.0) -> None:
        """Write what waits and end. Raises StoreError where something was lost."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise StoreError(
                f"store: {self.path} could not be written for {timeout:.0f} s; {len(self._pending)} rows are lost"
            )
        if self._lost:
            raise self._lost[0]

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                with self._wake:
                    self._wait()
                    pending, self._pending = self._pending, {}
                    calls = list(self._calls)
                    self._calls.clear()
                    waiters, self._waiters = self._waiters, []
                    urgent, self._urgent = self._urgent, False
                    self._due = None
                    closing = self._closing
                new = bool(pending)
                wrote = self._write(pending, durable=urgent or closing)
                del pending  # long transcripts among it must not stay until the next rows come
                for act, future in calls:
                    self._act(act, future)
                self._settle(waiters, wrote)
                if new and wrote:
                    self._tell_committed()
                if closing and (wrote or self._error is not None):
                    return
        finally:
            self._end()

    def _wait(self) -> None:
        """Sleep until there is work (the lock is held). After a failure the retry waits a moment."""
        while True:
            now = time.monotonic()
            retry_at = self._due if self._failing_since is not None else None
            if self._calls or (self._closing and (retry_at is None or now >= retry_at)):
                return
            if retry_at is None and (self._urgent or self._waiters):
                return
            if self._due is not None and now >= self._due:
                return
            self._wake.wait(None if self._due is None else self._due - now)

    def _write(self, pending: dict[Hashable, Any], *, durable: bool) -> bool:
        writes: list[tuple[Hashable, Any]] = []
        for key, write in pending.items():
            try:
                write.prepare()
            except Exception as error:  # noqa: BLE001 - whatever the row's content breaks, the other rows are written
                self._lose(key, error)
            else:
                writes.append((key, write))
        if not writes:
            self._recovered()
            return True
        try:
            self._transaction(writes, durable=durable)
        except sqlite3.OperationalError as error:
            self._failed(error, dict(writes))
            return False
        except (sqlite3.Error, OverflowError, ValueError) as error:
            # One row cannot be stored: write the others one by one and report that one.
            return self._write_singly(writes, error, durable=durable)
        self._recovered()
        return True

    def _write_singly(self, writes: list[tuple[Hashable, Any]], first: Exception, *, durable: bool) -> bool:
        if len(writes) == 1:
            self._lose(writes[0][0], first)
            return True
        middle = len(writes) // 2
        left = self._write(dict(writes[:middle]), durable=durable)
        return self._write(dict(writes[middle:]), durable=durable) and left

    def _tell_committed(self) -> None:
        for hook in list(self.after_commit):
            try:
                hook(self._connection)
            except Exception as error:  # noqa: BLE001 - the rows are safe; the thread must live to write the next
                # Once is enough: what failed now fails again, and `export` rebuilds a directory from the rows.
                self.after_commit.remove(hook)
                self._report(
                    PartLost(
                        f"store: the run directory is no longer written ({type(error).__name__}: {error})"
                    )
                )

    def _transaction(self, writes: list[tuple[Hashable, Any]], *, durable: bool) -> None:
        connection = self._connection
        if durable:
            connection.execute("PRAGMA synchronous = FULL")
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                for _, write in writes:
                    write.apply(connection)
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
        finally:
            if durable:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _act(self, act: Callable[[sqlite3.Connection], Any], future: Future[Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        connection = self._connection
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = act(connection)
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            future.set_exception(explain(error, self.path))
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who waits for the future
            future.set_exception(error)
        else:
            future.set_result(result)

    def _settle(self, waiters: list[Future[None]], wrote: bool) -> None:
        if wrote or self._error is not None:
            for waiter in waiters:
                if not waiter.set_running_or_notify_cancel():
                    continue
                if wrote:
                    waiter.set_result(None)
                else:
                    waiter.set_exception(StoreError(str(self._error)))
            return
        with self._wake:
            self._waiters = waiters + self._waiters

    def _failed(self, error: sqlite3.Error, writes: dict[Hashable, Any]) -> None:
        """Put the rows back (newer ones win) and try again soon."""
        now = time.monotonic()
        with self._wake:
            newer, self._pending = self._pending, writes
            for key, write in newer.items():
                older = self._pending.get(key)
                self._pending[key] = write if older is None else write.after(older)
            self._due = now + _RETRY_SECONDS
            if self._failing_since is None:
                self._failing_since = now
            report = self._error is None and now - self._failing_since >= self._grace
            if report:
                self._error = explain(error, self.path)
        if report and self._error is not None:
            self._report(self._error)

    def _recovered(self) -> None:
        with self._wake:
            self._failing_since = None
            self._error = None

    def _lose(self, key: Hashable, error: Exception) -> None:
        self._report(PartLost(f"store: a row could not be stored ({key}): {type(error).__name__}: {error}"))

    def _report(self, error: StoreError) -> None:
        listeners = list(self.listeners)
        for listener in listeners:
            listener(error)
        if not listeners:
            self._lost.append(error)  # told at close

    def _end(self) -> None:
        with self._wake:
            self._closing = self._ended = True
            left = len(self._pending)
            calls, waiters = list(self._calls), self._waiters
            self._calls.clear()
            self._waiters = []
        closed = StoreError(f"store: {self.path} is closed already")
        for future in [*(f for _, f in calls), *waiters]:
            if future.set_running_or_notify_cancel():
                future.set_exception(self._error or closed)
        if left:
            why = self._error or closed
            self._lost.insert(0, StoreError(f"{why}; {left} rows are lost"))
        self._connection.close()


def _roll_back(connection: sqlite3.Connection) -> None:
    # A full disk makes sqlite roll back by itself; a second ROLLBACK would hide the first error.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


class WriterPool:
    """The writers of this process, one for each file, each with the number of those who use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: dict[Path, tuple[Writer, int]] = {}

    def take(self, path: Path) -> Writer:
        """The file's writer; made where there is none. Raises StoreError."""
        with self._lock:
            writer, users = self._writers.get(path, (None, 0))
            if writer is None:
                writer = Writer(path)
            self._writers[path] = (writer, users + 1)
            return writer

    def give_back(self, writer: Writer) -> None:
        """Let go of a writer; the last one to do so closes it. Raises StoreError where rows were lost."""
        with self._lock:
            _, users = self._writers[writer.path]
            if users > 1:
                self._writers[writer.path] = (writer, users - 1)
            else:
                del self._writers[writer.path]
        if users == 1:
            writer.close()
