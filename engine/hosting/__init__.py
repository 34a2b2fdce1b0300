"""Where a run lives: in the app's process, in a command's, or in one of its own. The public face for app and commands.

The names below are loaded when they are first asked for: a command that only checks needs no clients and no server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.hosting.detach import DetachFailed, detach_run
    from engine.hosting.errors import CheckFailed, HostingError
    from engine.hosting.headless import HeadlessEnd, run_headless
    from engine.hosting.host import RunHost, write_crash
    from engine.hosting.library import train
    from engine.hosting.local_server import LocalServer
    from engine.hosting.prepare import check_project, load_project
    from engine.hosting.requests import request
    from engine.hosting.runs_here import RunsHere
    from engine.hosting.signals import exit_status

_MODULE_OF = {
    "CheckFailed": "errors",
    "DetachFailed": "detach",
    "HeadlessEnd": "headless",
    "HostingError": "errors",
    "LocalServer": "local_server",
    "RunHost": "host",
    "RunsHere": "runs_here",
    "check_project": "prepare",
    "detach_run": "detach",
    "exit_status": "signals",
    "load_project": "prepare",
    "request": "requests",
    "run_headless": "headless",
    "train": "library",
    "write_crash": "host",
}

__all__ = [
    "CheckFailed",
    "DetachFailed",
    "HeadlessEnd",
    "HostingError",
    "LocalServer",
    "RunHost",
    "RunsHere",
    "check_project",
    "detach_run",
    "exit_status",
    "load_project",
    "request",
    "run_headless",
    "train",
    "write_crash",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
