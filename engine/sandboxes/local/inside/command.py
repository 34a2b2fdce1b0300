"""Starting a command in a sandbox, and ending everything that it started.

A command is a child of its keeper, in a session of its own. Whatever was not there when it began belongs to it,
detached processes included: nothing else starts processes in a sandbox. Where several commands run at once, a process
belongs to the one whose number it carries in its environment, and to each of them where it carries none.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import linux, procs
from .seccomp import Filter

CANNOT_START, NOT_FOUND = 126, 127
COMMAND_VARIABLE = "LOOPS_COMMAND"
_SWEEP_SECONDS = 3.0
_HIGH = 400


class Plan:
    """What to execute and where; ``limits`` as ``linux.set_limits`` has them."""

    def __init__(self, words: list[str], cwd: str, env: dict[str, str], limits: dict[str, int]) -> None:
        self.words = words
        self.cwd = cwd
        self.env = env
        self.limits = limits
        self.call_filter: Filter | None = None


def start(plan: Plan, out: int, err: int) -> int:
    """Fork and execute; returns the child's pid. ``out`` and ``err`` are its streams. Raises OSError.

    What cannot be executed ends with code 126 or 127 and a line on ``err``, as a shell has it.
    """
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(plan, out, err, keeper)
    return pid


def _become(plan: Plan, out: int, err: int, keeper: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        linux.default_signals()
        # Out of the way first: they may have the numbers that they go to.
        high_out, high_err = (fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH) for fd in (out, err))
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(high_out, 1)
        os.dup2(high_err, 2)
        os.closerange(3, 1 << 20)
        # Inside a pid namespace of its own the keeper is not visible, and getppid() says 0.
        linux.die_with_parent(signal.SIGKILL, os.getppid() and keeper)
        os.umask(0o022)
        try:
            os.chdir(plan.cwd)
        except OSError as error:
            _complain(f"cannot enter {plan.cwd}: {error.strerror}", CANNOT_START)
        linux.set_limits(plan.limits)
        if plan.call_filter is not None:
            plan.call_filter.apply()
        try:
            os.execvpe(plan.words[0], plan.words, plan.env)
        except FileNotFoundError:
            _complain(f"{plan.words[0]}: not found", NOT_FOUND)
        except OSError as error:
            _complain(f"{plan.words[0]}: {error.strerror}", CANNOT_START)
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into the keeper's code
        _complain(f"the command could not be started: {error}", CANNOT_START)
    finally:
        os._exit(CANNOT_START)


def _complain(text: str, code: int) -> NoReturn:
    os.write(2, f"{text}\n".encode("utf-8", "replace"))
    os._exit(code)


class Belongings:
    """Tells which processes are a command's. ``before``: what was there when it began."""

    def __init__(self, number: int, processes: Callable[[], list[procs.Entry]], alone: bool) -> None:
        self._number = number
        self._processes = processes
        self._before = {(entry.pid, entry.start_ticks) for entry in processes()}
        #: Whether no other command has run at the same time so far.
        self.alone = alone

    def find(self) -> list[procs.Entry]:
        """The command's living processes."""
        fresh = [e for e in self._processes() if (e.pid, e.start_ticks) not in self._before]
        if self.alone:
            return fresh
        return [entry for entry in fresh if self._claims(entry)]

    def _claims(self, entry: procs.Entry) -> bool:
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
    return procs.sweep(find, _SWEEP_SECONDS)


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
