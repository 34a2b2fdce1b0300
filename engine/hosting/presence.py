"""This process as the holder of what it leases beside runs, so that nobody's cleanup takes it away meanwhile."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from types import TracebackType
from typing import Self

from engine.hosting.pulse import BEAT_SECONDS
from engine.store.errors import StoreError
from engine.store.processes import process_started
from engine.store.rows import HostRow
from engine.store.store import Store

log = logging.getLogger(__name__)

_JOIN_SECONDS = 15.0


class Presence:
    """``with Presence(store, "evaluation") as host_id``. Blocks briefly at both ends; beats from a thread between."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store, self._kind = store, kind
        self.host_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"presence {kind}", daemon=True)

    def __enter__(self) -> Self:
        pid, now = os.getpid(), time.time()
        started = process_started(pid) or now
        self._store.register_host(
            HostRow(self.host_id, pid, started, socket.gethostname(), self._kind, now, now)
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_JOIN_SECONDS)
        try:
            self._store.forget_host(self.host_id)
        except StoreError as trouble:
            log.warning("%s", trouble)

    def _beat(self) -> None:
        while not self._end.wait(BEAT_SECONDS):
            try:
                self._store.heartbeat(self.host_id)
            except StoreError as error:
                log.warning("%s", error)
