"""What the store says when it cannot do its work."""

from __future__ import annotations

import sqlite3
from pathlib import Path

LOCK_WAIT_SECONDS = 5.0
"""How long a connection waits for another process's write lock before it gives up."""


class StoreError(Exception):
    """One clear sentence for a person: what could not be stored or found, and what helps."""


class UnknownRun(StoreError):
    """A name that fits no run, or more than one; the message lists candidates."""


class UnknownCheckpoint(StoreError):
    """A name that fits no saved checkpoint of its run; the message lists those that there are."""


class RunTaken(StoreError):
    """Somebody else has the run; the message names the process."""


class PartLost(StoreError):
    """One row could not be stored, or a run directory could not be written; everything else goes on."""


def explain(error: BaseException, path: Path) -> StoreError:
    """Turn an error of sqlite or of the file system into a sentence that names the file and the remedy."""
    text = str(error)
    low = text.lower()
    if "locked" in low or "busy" in low:
        said = f"another process has held {path} locked for more than {LOCK_WAIT_SECONDS:.0f} s"
    elif "full" in low or "no space" in low:
        said = f"the disk that holds {path} is full"
    elif "readonly" in low or "permission" in low or "unable to open" in low or "read-only" in low:
        said = f"{path} cannot be written: check its permissions and those of its directory"
    elif "malformed" in low or "not a database" in low:
        said = f"{path} is damaged or no loops-tui store: move it away, a new one is made at the next start"
    elif isinstance(error, sqlite3.OperationalError) and "no such table" in low:
        said = (
            f"{path} lacks a table of the store ({text}): move it away, a new one is made at the next start"
        )
    else:
        said = f"{path} could not be used ({type(error).__name__}: {text})"
    return StoreError(f"store: {said}")
