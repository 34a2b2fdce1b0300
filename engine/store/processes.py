"""Is the process that wrote a host row still that process?"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

_SAME_START_SECONDS = 3.0
"""Two readings of one process's start may differ by the clock's corrections and by ``ps``'s whole seconds."""


def hostname() -> str:
    """This machine's name, as host rows carry it."""
    return socket.gethostname()


def process_started(pid: int) -> float | None:
    """When the process began, in Unix seconds; None where it is gone (or a zombie: it will do nothing more)."""
    if sys.platform == "linux":
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def same_process(pid: int, started: float) -> bool:
    """Whether ``pid`` is alive and is the process that began at ``started`` (Unix seconds)."""
    now = process_started(pid)
    return now is not None and abs(now - started) <= _SAME_START_SECONDS


def _started_by_proc(pid: int) -> float | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in brackets and may hold spaces and brackets itself.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] in {"Z", "X"}:
        return None
    boot_seconds = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith("btime"))
    return boot_seconds + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _started_by_ps(pid: int) -> float | None:
    done = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    words = done.stdout.split()
    if done.returncode != 0 or len(words) < 6 or words[0].startswith("Z"):
        return None
    return time.mktime(time.strptime(" ".join(words[1:6]), "%a %b %d %H:%M:%S %Y"))
