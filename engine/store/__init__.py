"""The SQLite store: the only thing between the engine and whoever watches it."""

from engine.store.errors import StoreError, UnknownRun
from engine.store.queries import StoreReader
from engine.store.recorder import RunRecorder
from engine.store.redact import Redactor
from engine.store.rundir import RunDirectory, new_run_id, run_directory, safe_name
from engine.store.search import HIT_END, HIT_START, SearchHit
from engine.store.store import Store

__all__ = [
    "HIT_END",
    "HIT_START",
    "Redactor",
    "RunDirectory",
    "RunRecorder",
    "SearchHit",
    "Store",
    "StoreError",
    "StoreReader",
    "UnknownRun",
    "new_run_id",
    "run_directory",
    "safe_name",
]
