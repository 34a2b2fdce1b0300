"""The SDK is made ready here before anything of it is used: quiet, and imported without what is not used of it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from types import ModuleType
from typing import Any

from engine.importing import uncollected

#: It imports this for an option of its training client that is not used here; that is a third of its whole import.
UNUSED = "wandb"


def quiet_sdk() -> None:
    """Keep the SDK's advice about log levels off stderr, and proxies away from this machine's own servers.

    A level that the program itself has chosen stays.
    """
    logger = logging.getLogger("baseten.loops")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(name, "").split(",") if host]
        os.environ[name] = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))


def ready_sdk() -> None:
    """Import the SDK, quiet; it takes a second or two at first."""
    quiet_sdk()
    if "baseten.loops" not in sys.modules:
        _import_without(UNUSED)


class _Later(ModuleType):
    """Stands for a module, which is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _import_without(name: str) -> None:
    """Import the SDK with a stand-in for a module. Whoever imports that one afterwards gets the module itself."""
    stand_in = None
    if name not in sys.modules:
        stand_in = sys.modules[name] = _Later(name)
    try:
        with uncollected():
            importlib.import_module("baseten.loops")
    finally:
        if stand_in is not None and sys.modules.get(name) is stand_in:
            del sys.modules[name]
