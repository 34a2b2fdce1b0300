"""The SQLite store: the only thing between the engine and whoever watches it.

The names below are loaded when they are first asked for: the application imports a module of this package before its
first paint, and not all of the store.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.errors import StoreError, UnknownRun
    from engine.store.queries import StoreReader
    from engine.store.recorder import RunRecorder
    from engine.store.redact import Redactor
    from engine.store.rundir import RunDirectory, new_run_id, run_directory, safe_name
    from engine.store.search import SearchHit
    from engine.store.snippets import HIT_END, HIT_START
    from engine.store.store import Store

_MODULE_OF = {
    "HIT_END": "snippets",
    "HIT_START": "snippets",
    "Redactor": "redact",
    "RunDirectory": "rundir",
    "RunRecorder": "recorder",
    "SearchHit": "search",
    "Store": "store",
    "StoreError": "errors",
    "StoreReader": "queries",
    "UnknownRun": "errors",
    "new_run_id": "rundir",
    "run_directory": "rundir",
    "safe_name": "rundir",
}

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


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
