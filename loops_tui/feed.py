"""From the store to the screen in view.

One thread owns the reader. A few times a second it asks for the store's data version, which is next to free; only
when that has changed does it read again what the screen in view needs. Screens that are hidden cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from textual.message import Message

from engine.store.errors import StoreError

if TYPE_CHECKING:
    from engine.store.queries import StoreReader
    from engine.store.store import Store

log = logging.getLogger(__name__)

POLL_SECONDS = 0.3
SPACING_SECONDS = 0.9  # between two reads of a store that changes all the time: nobody could follow more
STALE_CHECK_SECONDS = 5.0  # how often to look for hosts that died: they, of all, change nothing in the store

type ReadPlan = Callable[[StoreReader], object]


class Fresh(Message, bubble=False):
    """What a screen's plan has read."""

    def __init__(self, data: object) -> None:
        super().__init__()
        self.data = data


class Unreadable(Message, bubble=False):
    """The store could not be read; ``sentence`` says why. None: it can be read again."""

    def __init__(self, sentence: str | None) -> None:
        super().__init__()
        self.sentence = sentence


class Fed(Protocol):
    """A screen that shows rows."""

    def read_plan(self) -> ReadPlan | None:
        """What to read now (None: nothing), as a function for the reading thread."""
        ...

    def post_message(self, message: Message) -> bool: ...


class Feed:
    """The one poller of an app."""

    def __init__(self, open_store: Callable[[], Store], in_view: Callable[[], Fed | None]) -> None:
        self._open_store = open_store
        self._in_view = in_view
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-reader")
        self._store: Store | None = None
        self._reader: StoreReader | None = None
        self._poked = asyncio.Event()
        self._wish = 0  # counts what screens asked for beyond the store's changes
        self._seen: tuple[int, int, int] | None = None  # (which screen, which wish, which data version)
        self._looked_at: float = 0.0
        self._read_at: float = 0.0
        self._failing = False
        self._overdue = False  # something is to be shown that the data version does not tell
        self.reads = 0  # plans carried out
        self.turns = 0  # times the store was asked whether it has changed

    def poke(self) -> None:
        """Read again soon although the store has not changed: the screen wants something else."""
        self._wish += 1
        self._poked.set()

    async def call[T](self, work: Callable[[Store], T]) -> T:
        """Do something with the store on its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._opened()))

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            self.turns += 1
            try:
                await self._turn()
            except StoreError as error:
                self._report(str(error))
            try:
                await asyncio.wait_for(self._poked.wait(), POLL_SECONDS)
            except TimeoutError:
                continue
            self._poked.clear()

    def close(self) -> None:
        """Stop reading; the thread closes the store behind the last read."""
        self._thread.submit(self._close_store)
        self._thread.shutdown(wait=False)

    async def _turn(self) -> None:
        screen = self._in_view()
        if screen is None:
            return
        plan = screen.read_plan()
        wanted = (id(screen), self._wish)
        result = await self.call(lambda store: self._read(store, plan, wanted))
        if self._failing:
            self._failing = False
            screen.post_message(Unreadable(None))
        if result is None:
            return
        version, data = result
        self._seen = (*wanted, version)
        screen.post_message(Fresh(data))

    def _read(
        self, store: Store, plan: ReadPlan | None, wanted: tuple[int, int]
    ) -> tuple[int, object] | None:
        reader = self._reader_of(store)
        now = time.monotonic()
        if now - self._looked_at >= STALE_CHECK_SECONDS:
            self._looked_at = now
            # In an app that only looks on, a death changes nothing in the store, and is shown all the same.
            self._overdue = bool(store.reconcile()) or self._overdue
        version = reader.data_version()
        if plan is None or (self._seen == (*wanted, version) and not self._overdue):
            return None
        # The first change after a quiet while is shown at once, a stream of them in steps.
        same_wish = self._seen is not None and self._seen[:2] == wanted
        if same_wish and now - self._read_at < SPACING_SECONDS:
            return None
        self._read_at = now
        self._overdue = False
        self.reads += 1
        return version, plan(reader)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _reader_of(self, store: Store) -> StoreReader:
        if self._reader is None:
            self._reader = store.reader()
        return self._reader

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = self._reader = None

    def _report(self, sentence: str) -> None:
        screen = self._in_view()
        if not self._failing:
            log.error("%s", sentence)
        self._failing = True
        if screen is not None:
            screen.post_message(Unreadable(sentence))
