"""The SDK is made ready here before anything of it is used: quiet, and imported without what is not used of it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from types import ModuleType
from typing import Any

from engine.importing import uncollected

#: It imports these for an option and for an act of its training client that are not used here; three quarters of its
#: whole import are theirs.
UNUSED = ("wandb", "baseten.loops._checkpoint_download")


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
        _import_without(*UNUSED)


class _Later(ModuleType):
    """Stands for a module, which is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def _import_without(*names: str) -> None:
    """Import the SDK with stand-ins for modules. Whoever imports one of those afterwards gets the module itself."""
    stand_ins = {name: _Later(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        with uncollected():
            importlib.import_module("baseten.loops")
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
