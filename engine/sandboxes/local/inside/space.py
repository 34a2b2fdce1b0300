"""The space that a sandbox's commands live in: namespaces held by bubblewrap, or ordinary processes with rules.

Entering it changes the calling process, the keeper, for good: it joins the space and gives up every right that it
does not need. Raises SpaceError with a sentence where that fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any

from . import bubblewrap, landlock, linux, procs, seccomp

READY_SECONDS = 20.0
"""How long bubblewrap may take on a busy machine."""
_END_SECONDS = 10.0
_INIT_PID = 1


class SpaceError(Exception):
    """The sandbox could not be made; one sentence."""


class Space:
    """Where commands run."""

    workdir = "/work"
    home = "/tmp"

    def enter(self, broker_pid: int) -> None:
        """Complete and enter the space, and give up every right that is not needed. Raises SpaceError."""
        raise NotImplementedError

    def processes(self) -> list[procs.Entry]:
        """The processes of the sandbox's commands; init, the keeper and its helpers are left out."""
        raise NotImplementedError

    def last_resort(self) -> None:
        """End everything in the space at once, where that is possible (called in a forked child)."""

    def kill_everything(self) -> bool:
        """End every process of the sandbox (called in a forked child of the keeper); False if some would not go."""
        raise NotImplementedError

    def has_ended(self, ended: dict[int, int]) -> bool:
        """Whether the space itself is gone, given the children that the keeper has just reaped."""
        return False

    def is_dying(self) -> bool:
        """Whether something outside has ended the space, or is about to."""
        return False

    def end(self) -> bool:
        """End everything in the space and wait for it; whether surely nothing is left."""
        raise NotImplementedError


def begin_space(config: dict[str, Any]) -> Space:
    """Begin to make the space that ``config`` asks for; ``enter`` completes it. Raises SpaceError."""
    return _Namespaces(config) if config["isolation"] == "bubblewrap" else _Confined(config)


class _Namespaces(Space):
    """bubblewrap's namespaces; the keeper joins all of them, its children its pid namespace too."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._making = _Bubblewrap(config)
        self._outer = self._making.pid
        self._init_fd = -1

    def enter(self, broker_pid: int) -> None:
        init = self._making.wait()
        try:
            self._init_fd = os.pidfd_open(init)
            linux.join_namespaces(self._init_fd, init, lambda: _furnish(self._config))
            linux.no_new_privileges()
            linux.drop_capabilities()
            linux.set_dumpable(False)
            linux.die_with_parent(signal.SIGKILL, broker_pid)
            _filter_calls(self._config, own_network=True)
            os.chdir(self.workdir)
        except OSError as error:
            raise SpaceError(f"the sandbox's namespaces could not be entered: {error}") from error

    def processes(self) -> list[procs.Entry]:
        entries = procs.all_entries()
        # Nobody can enter a session: init's holds its own helper, and one outside (0) those of the keeper.
        own = next((entry.session for entry in entries if entry.pid == _INIT_PID), 0)
        return [entry for entry in entries if entry.pid != _INIT_PID and entry.session not in {own, 0}]

    def last_resort(self) -> None:
        # All in this pid namespace but its init and the caller; nothing can fork its way out of it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)

    def kill_everything(self) -> bool:
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            self.last_resort()
            if not self.processes():
                return True
            time.sleep(0.001)
        return False

    def has_ended(self, ended: dict[int, int]) -> bool:
        if self._outer in ended:
            return True
        # When init is killed from outside, the kernel kills its namespace's commands first; they did not just fail.
        killed = any(
            os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL for status in ended.values()
        )
        return killed and self.is_dying()

    def is_dying(self) -> bool:
        return procs.is_exiting(_INIT_PID)

    def end(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        os.close(self._making.lifeline)
        # Init is reported dead only after everything in its namespace is; our own guards must be reaped for that.
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            if self._outer in procs.reap() or not _is_child(self._outer):
                return True
            time.sleep(0.0005)
        return False


def _furnish(config: dict[str, Any]) -> None:
    """What the private root still lacks: a few files, places to write with bounds, and no other place to write."""
    for path, text in bubblewrap.ETC_FILES.items():
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.write(file, text.encode())
        os.close(file)
    linux.mount_tmpfs("/work", 0o755, config["disk_bytes"], config["inodes"])
    linux.mount_tmpfs("/tmp", 0o1777, config["scratch_bytes"], config["inodes"])
    linux.mount_tmpfs("/dev/shm", 0o1777, config["shm_bytes"], config["inodes"])
    linux.make_read_only("/dev")
    linux.make_read_only("/")


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _filter_calls(config: dict[str, Any], *, own_network: bool) -> None:
    """On the keeper itself: its commands inherit it, and it needs none of these calls any more."""
    call_filter = seccomp.build(own_network=own_network) if config["seccomp"] else None
    if call_filter is not None:
        call_filter.apply()


class _Bubblewrap:
    """A bubblewrap that has been started. ``lifeline``: the descriptor that keeps the namespaces' init alive."""

    def __init__(self, config: dict[str, Any]) -> None:
        lifeline_read, self.lifeline = os.pipe2(os.O_CLOEXEC)
        self._ready, ready_write = os.pipe2(os.O_CLOEXEC)
        self._trouble, trouble_write = os.pipe2(os.O_CLOEXEC)
        self._info, info_write = os.pipe2(os.O_CLOEXEC)
        os.set_inheritable(info_write, True)
        try:
            self.pid = os.posix_spawn(
                config["bwrap"],
                bubblewrap.command_line(config["marker"], info_write),
                {"PATH": "/usr/bin:/bin"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, lifeline_read, 0),
                    (os.POSIX_SPAWN_DUP2, ready_write, 1),
                    (os.POSIX_SPAWN_DUP2, trouble_write, 2),
                ],
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
        except OSError as error:
            raise SpaceError(f"bubblewrap could not be started: {error.strerror}") from error
        for fd in (lifeline_read, ready_write, trouble_write, info_write):
            os.close(fd)

    def wait(self) -> int:
        """The pid of the namespaces' init, once it has begun. Raises SpaceError."""
        try:
            poller = select.poll()
            poller.register(self._ready, select.POLLIN)
            if not poller.poll(READY_SECONDS * 1000):
                raise SpaceError(f"bubblewrap was not ready within {READY_SECONDS:.0f} s")
            if not os.read(self._ready, 16):
                said = os.read(self._trouble, 4096).decode("utf-8", "replace").strip()
                raise SpaceError(f"bubblewrap cannot make a sandbox here: {said or 'it said nothing'}")
            return int(json.loads(os.read(self._info, 4096))["child-pid"])
        finally:
            for fd in (self._ready, self._trouble, self._info):
                os.close(fd)


class _Confined(Space):
    """Ordinary processes below the keeper, with Landlock's rules or with none. ``workdir`` is a real directory."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._me = os.getpid()
        self._session = os.getsid(0)
        self._place = place = config["workspace"]
        self.workdir = os.path.join(place, "work")
        self.home = os.path.join(place, "tmp")

    def enter(self, broker_pid: int) -> None:
        try:
            for path in (self._place, self.workdir, self.home):
                os.mkdir(path, 0o700)
            linux.become_subreaper()
            linux.no_new_privileges()
            if self._config["isolation"] == "landlock":
                landlock.confine(self._place, bubblewrap.ETC)
            # A keeper must end its processes before it goes: nothing else would.
            linux.die_with_parent(signal.SIGTERM, broker_pid)
            _filter_calls(self._config, own_network=False)
            os.chdir(self.workdir)
        except OSError as error:
            raise SpaceError(f"the sandbox could not be confined: {error}") from error

    def processes(self) -> list[procs.Entry]:
        below = procs.descendants(self._me, procs.all_entries())
        return [entry for entry in below if entry.session != self._session]  # nobody can enter the keeper's

    def kill_everything(self) -> bool:
        return procs.sweep(self.processes, _END_SECONDS)

    def end(self) -> bool:
        def below() -> list[procs.Entry]:
            return procs.descendants(self._me, procs.all_entries())

        clean = procs.sweep(below, _END_SECONDS)
        with contextlib.suppress(FileNotFoundError):
            _remove_tree(self._place)
        return clean


def _remove_tree(path: str) -> None:
    """Empty a directory; ones without rights are given them back. The directory itself may have to stay where the
    rules forbid to remove it: the engine's process does that."""
    with contextlib.suppress(PermissionError):
        os.chmod(path, 0o700)
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(entry.path)
        else:
            os.unlink(entry.path)
    with contextlib.suppress(PermissionError):
        os.rmdir(path)
