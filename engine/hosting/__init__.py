"""Where a run lives: in the app's process, in a command's, or in one of its own. The public face for app and commands."""

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
