"""Processes as /proc shows them, and how a whole tree of them is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

_TICKS = os.sysconf("SC_CLK_TCK")
_MAX_COMMAND = 4096
_PF_EXITING = 4
_EXEC_SECONDS = 1.0


class Entry:
    """One living process. ``state``: the kernel's letter; ``start_ticks``: clock ticks after boot."""

    __slots__ = ("parent", "pid", "session", "start_ticks", "state")

    def __init__(self, pid: int, parent: int, session: int, state: str, start_ticks: int) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.state = state
        self.start_ticks = start_ticks


def _fields(pid: int) -> list[bytes]:
    """What /proc/PID/stat tells after the program's name; nothing where the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The name stands in brackets and may hold spaces and brackets itself.
    return text[text.rindex(b")") + 2 :].split()


def read_entry(pid: int) -> Entry | None:
    """None where it is gone or a zombie: it will do nothing more."""
    fields = _fields(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Entry(pid, int(fields[1]), int(fields[3]), fields[0].decode("ascii"), int(fields[19]))


def is_exiting(pid: int) -> bool:
    """Whether a process is dead, or is being ended by the kernel right now."""
    fields = _fields(pid)
    return not fields or bool(int(fields[6]) & _PF_EXITING)


def all_pids() -> set[int]:
    """Every pid that this /proc shows, zombies included."""
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def ticks_now() -> int:
    """The present as ``Entry.start_ticks`` counts it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS)


def all_entries() -> list[Entry]:
    """Every living process that this /proc shows."""
    found = (read_entry(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return [entry for entry in found if entry is not None]


def descendants(root: int, entries: list[Entry]) -> list[Entry]:
    """Those of ``entries`` that descend from ``root``, without it."""
    children: dict[int, list[Entry]] = {}
    for entry in entries:
        children.setdefault(entry.parent, []).append(entry)
    found: list[Entry] = []
    heads = [root]
    while heads:
        for entry in children.get(heads.pop(), ()):
            found.append(entry)
            heads.append(entry.pid)
    return found


def command_of(pid: int) -> str:
    """The command line, or the program's name in square brackets where it has none; "" where it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(_MAX_COMMAND)
        if words:
            return words.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        with open(f"/proc/{pid}/comm", "rb") as file:
            return f"[{file.read().decode('utf-8', 'replace').strip()}]"
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""


def variable_of(pid: int, name: str) -> str | None:
    """A variable that a process was started with; None where it has none or does not let us look."""
    mark = name.encode() + b"="
    words = _environment(pid).split(b"\0")
    return next(
        (word[len(mark) :].decode("utf-8", "replace") for word in words if word.startswith(mark)), None
    )


def _environment(pid: int) -> bytes:
    """A process that is just becoming another program shows none, on a busy machine for long: it is waited for."""
    deadline = time.monotonic() + _EXEC_SECONDS
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read(1 << 20)
        except OSError:
            return b""
        fields = [] if text else _fields(pid)
        if not fields or fields[0] in (b"Z", b"X") or time.monotonic() > deadline:
            return text
        # The kernel notes where the code begins after it has noted where the environment does, and where that ends.
        if fields[23] != b"0" and fields[47] == fields[48]:
            return text
        time.sleep(0.0005)


def pid_behind(descriptor: int) -> int | None:
    """The pid, as this /proc shows it, of the process that a pidfd of ours stands for.

    None where it is gone, and on kernels before 5.14, which do not let an undumpable process see its descriptors.
    """
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            found = next((int(line[4:]) for line in file if line.startswith(b"Pid:")), -1)
    except OSError:
        return None
    return found if found > 0 else None


def boot_time() -> float:
    """When the machine started, in Unix seconds."""
    with open("/proc/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime"):
                return float(line.split()[1])
    raise OSError("/proc/stat names no boot time")


def started_at(entry: Entry, booted: float) -> float:
    """Unix seconds."""
    return booted + entry.start_ticks / _TICKS


def send(pid: int, number: int) -> None:
    """A signal to one process that may be gone by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def reap() -> dict[int, int]:
    """Collect every child that has ended: pid to wait status."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def sweep(victims: Callable[[], list[Entry]], seconds: float) -> bool:
    """Kill whatever ``victims`` finds until it finds nothing; False where ``seconds`` did not suffice.

    All are stopped before the first is killed: a stopped process cannot fork behind our back.
    """
    deadline = time.monotonic() + seconds
    while True:
        stopped: set[int] = set()
        while True:
            fresh = [entry.pid for entry in victims() if entry.pid not in stopped]
            if not fresh:
                break
            for pid in fresh:
                send(pid, signal.SIGSTOP)
            stopped.update(fresh)
            if time.monotonic() > deadline:
                break
        for pid in stopped:
            send(pid, signal.SIGKILL)
        reap()
        if not stopped:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
