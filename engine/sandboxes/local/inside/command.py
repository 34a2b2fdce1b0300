"""Starting a command in a sandbox, and ending everything that it started.

A command is a child of its keeper, in a session of its own, which nobody else can enter. To it belongs what is in
that session or descends from it, and nothing that is in another command's, was there before, or descends from such.
What has detached itself and lost its parents belongs to the command if no other has run at the same time; else to the
one whose number it carries in its environment, and to each of them where it carries none.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import procs
from .frames import Message

CANNOT_START = 126
COMMAND_VARIABLE = "LOOPS_COMMAND"
#: A busy machine lets killed processes wait for their end; sooner than that all of a sandbox is not given up. The
#: keeper's helper has some more time than both together.
_SWEEP_SECONDS, _LAST_SWEEP_SECONDS = 10.0, 3.0

# A shell sets the limits and the directory and then becomes the command: so the keeper can start it without being
# copied first (vfork), which is what most of the time of a short command would go into.
_PRELUDE = 'cd -- "$1" || exit {cannot}; unset OLDPWD; shift; {limits} exec "$@"'
# name of the limit: option of ``ulimit`` (dash and busybox have -p where bash has -u), bytes per unit
_OPTIONS = {
    "NOFILE": ("-n", 1),
    "FSIZE": ("-f", 512),
    "CPU": ("-t", 1),
    "DATA": ("-d", 1024),
    "CORE": ("-c", 512),
    "NPROC": ("-p", 1),
}


def prelude(limits: dict[str, int]) -> str:
    """What the shell does first. ``limits``: by the names of ``resource``; never above what is allowed already."""
    words: list[str] = []
    for name, value in limits.items():
        option, unit = _OPTIONS[name]
        _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        number = (value if hard == resource.RLIM_INFINITY else min(value, hard)) // unit
        set_it = f"ulimit {option} {number}"
        words.append(f"{set_it} 2>/dev/null || ulimit -u {number};" if name == "NPROC" else f"{set_it};")
    return _PRELUDE.format(cannot=CANNOT_START, limits=" ".join(words))


def start(first: str, words: list[str], cwd: str, env: dict[str, str], streams: tuple[int, int]) -> int:
    """Start a command in a session of its own and return its pid. ``first``: see ``prelude``. Raises OSError.

    What cannot be executed ends with code 126 or 127 and a line on its error stream, as a shell has it.
    """
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", first, "sh", cwd, *words],
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, streams[0], 1),
            (os.POSIX_SPAWN_DUP2, streams[1], 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
    )


def too_long(header: Message) -> tuple[Message, bytes]:
    """The answer for a command line that the kernel takes no program with: a result like any other failure's."""
    said = b"sh: the command is too long\n"
    parts = [[0, 0, 0], [len(said), 0, 0]]
    if header["merge_stderr"]:
        parts = parts[1:]
    answer = {
        "id": header["id"],
        "seconds": 0.0,
        "status": "completed",
        "exit_code": CANNOT_START,
        "parts": parts,
    }
    return answer, said


class Belongings:
    """Tells which processes are a command's; made just before it begins."""

    def __init__(self, number: int, processes: Callable[[], list[procs.Entry]]) -> None:
        self._number = number
        self._processes = processes
        self._before = procs.all_pids()
        self._began = procs.ticks_now()
        self._leader = -1
        self._running: set[Belongings] = set()  # other commands
        self._alone = True  # no other command has run at the same time so far
        self._sessions: tuple[int | None, set[int | None]] | None = None

    def begin(self, pid: int, running: Iterable[Belongings]) -> None:
        """The command has begun, as the keeper's child ``pid`` and beside those that are ``running``."""
        self._leader = os.pidfd_open(pid)
        for other in running:
            self._running.add(other)
            other._running.add(self)
            self._alone = other._alone = False

    def close(self) -> None:
        """The command is over."""
        os.close(self._leader)
        for other in self._running:
            other._running.discard(self)

    def find(self) -> list[procs.Entry]:
        """The command's living processes; called in a forked child of the keeper only.

        The keeper is in no pid namespace of the sandbox's: it could not tell a command's session by its pid.
        """
        if self._sessions is None:
            others = {procs.pid_behind(other._leader) for other in self._running}
            self._sessions = procs.pid_behind(self._leader), others
        known = {entry.pid: entry for entry in self._processes()}
        return [entry for entry in known.values() if self._claims(entry, known, *self._sessions)]

    def _claims(
        self, entry: procs.Entry, known: dict[int, procs.Entry], own: int | None, others: set[int | None]
    ) -> bool:
        at: procs.Entry | None = entry
        for _ in known:  # a bound: what is read while it changes may show a circle
            if at is None:
                break
            if at.session == own:
                return True
            if at.session in others or (at.pid in self._before and at.start_ticks <= self._began):
                return False
            at = known.get(at.parent)
        if self._alone:
            return True
        number = procs.variable_of(entry.pid, COMMAND_VARIABLE)
        return number is None or number == str(self._number)


def end(find: Callable[[], list[procs.Entry]], grace: float, last_resort: Callable[[], None]) -> bool:
    """SIGTERM, and SIGKILL for what is left ``grace`` seconds later; called in a forked child of the keeper.

    ``last_resort``: kills everything in the sandbox at once, for what forks faster than it is found.
    """
    deadline = time.monotonic() + grace
    if grace > 0:
        for entry in find():
            procs.send(entry.pid, signal.SIGTERM)
            procs.send(entry.pid, signal.SIGCONT)  # a stopped process would not hear it
    while time.monotonic() < deadline:
        if not find():
            return True
        time.sleep(0.01)
    if procs.sweep(find, _SWEEP_SECONDS):
        return True
    last_resort()
    return procs.sweep(find, _LAST_SWEEP_SECONDS)


def environment(
    config: dict[str, Any], home: str, cwd: str, extra: dict[str, str], number: int
) -> dict[str, str]:
    """What a command sees: nothing of the machine's own environment."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "TMPDIR": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PWD": cwd,
        **config["env"],
        **extra,
        "LOOPS_SANDBOX": config["name"],
        COMMAND_VARIABLE: str(number),
    }
