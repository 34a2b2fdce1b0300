"""Ask a run's host for something, wherever it lives, and wait for its answer in the store."""

from __future__ import annotations

import time

from engine.store.rows import CommandRow, CommandState
from engine.store.store import Store

ANSWER_SECONDS = 15.0
_LOOK_SECONDS = 0.1


def request(store: Store, ref: str, kind: str, *, timeout: float = ANSWER_SECONDS) -> CommandRow:
    """Write a command for the run that ``ref`` means and return its row once it is answered.

    The row is still ``queued`` or ``accepted`` where the host has not answered within ``timeout`` seconds.
    Raises StoreError where the run is unknown, has ended, or its host is gone.
    """
    reader = store.reader()
    store.reconcile()
    row = store.request(reader.run(ref).run_id, kind)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = reader.command(row.command_id)
        if found is not None:
            row = found
        if row.state not in (CommandState.QUEUED, CommandState.ACCEPTED):
            break
        time.sleep(_LOOK_SECONDS)
    return row
