"""The space that a sandbox's commands live in: namespaces held by bubblewrap, or ordinary processes with rules.

``open_space`` changes the calling process, the keeper, for good: it joins the space and gives up every right that
it does not need. Raises SpaceError with a sentence where that fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any

from . import bubblewrap, landlock, linux, procs

READY_SECONDS = 20.0
"""How long bubblewrap may take on a busy machine."""
_END_SECONDS = 10.0
_INIT_PID = 1


class SpaceError(Exception):
    """The sandbox could not be made; one sentence."""


class Space:
    """Where commands run. ``private_pids``: the processes have a pid namespace of their own."""

    workdir = "/work"
    home = "/tmp"
    private_pids = False

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

    def end(self) -> bool:
        """End everything in the space and wait for it; whether surely nothing is left."""
        raise NotImplementedError


def open_space(config: dict[str, Any], broker_pid: int) -> Space:
    """Make and enter the space that ``config`` asks for."""
    # On a machine that runs out of memory a sandbox goes before anything else does.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(b"500")
    if config["isolation"] == "bubblewrap":
        return _Namespaces(config, broker_pid)
    return _Confined(config, broker_pid)


class _Namespaces(Space):
    """bubblewrap's namespaces; the keeper joins all of them, its children its pid namespace too."""

    private_pids = True

    def __init__(self, config: dict[str, Any], broker_pid: int) -> None:
        self._outer, self._init, self._lifeline = _start_bubblewrap(config)
        try:
            self._init_fd = os.pidfd_open(self._init)
            linux.join_namespaces(self._init_fd, self._init, lambda: _furnish(config))
            linux.no_new_privileges()
            linux.drop_capabilities()
            linux.set_dumpable(False)
            linux.die_with_parent(signal.SIGKILL, broker_pid)
            os.chdir(self.workdir)
        except OSError as error:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._outer, signal.SIGKILL)
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
        return self._outer in ended

    def end(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
        os.close(self._lifeline)
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


def _start_bubblewrap(config: dict[str, Any]) -> tuple[int, int, int]:
    """The pids of bubblewrap and of the namespaces' init, and the descriptor that keeps init alive."""
    lifeline_read, lifeline = os.pipe2(os.O_CLOEXEC)
    ready, ready_write = os.pipe2(os.O_CLOEXEC)
    trouble, trouble_write = os.pipe2(os.O_CLOEXEC)
    info, info_write = os.pipe2(os.O_CLOEXEC)
    os.set_inheritable(info_write, True)
    words = bubblewrap.command_line(config["marker"], info_write)
    actions = [
        (os.POSIX_SPAWN_DUP2, lifeline_read, 0),
        (os.POSIX_SPAWN_DUP2, ready_write, 1),
        (os.POSIX_SPAWN_DUP2, trouble_write, 2),
    ]
    try:
        outer = os.posix_spawn(
            config["bwrap"],
            words,
            {"PATH": "/usr/bin:/bin"},
            file_actions=actions,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM),
        )
    except OSError as error:
        raise SpaceError(f"bubblewrap could not be started: {error.strerror}") from error
    for fd in (lifeline_read, ready_write, trouble_write, info_write):
        os.close(fd)
    try:
        poller = select.poll()
        poller.register(ready, select.POLLIN)
        if not poller.poll(READY_SECONDS * 1000):
            os.kill(outer, signal.SIGKILL)
            raise SpaceError(f"bubblewrap was not ready within {READY_SECONDS:.0f} s")
        if not os.read(ready, 16):
            said = os.read(trouble, 4096).decode("utf-8", "replace").strip()
            raise SpaceError(f"bubblewrap cannot make a sandbox here: {said or 'it said nothing'}")
        init = int(json.loads(os.read(info, 4096))["child-pid"])
    finally:
        for fd in (ready, trouble, info):
            os.close(fd)
    return outer, init, lifeline


class _Confined(Space):
    """Ordinary processes below the keeper, with Landlock's rules or with none. ``workdir`` is a real directory."""

    def __init__(self, config: dict[str, Any], broker_pid: int) -> None:
        place = config["workspace"]
        self.workdir = os.path.join(place, "work")
        self.home = os.path.join(place, "tmp")
        try:
            for path in (place, self.workdir, self.home):
                os.mkdir(path, 0o700)
            linux.become_subreaper()
            linux.no_new_privileges()
            if config["isolation"] == "landlock":
                landlock.confine(place, bubblewrap.ETC)
            # A keeper must end its processes before it goes: nothing else would.
            linux.die_with_parent(signal.SIGTERM, broker_pid)
            os.chdir(self.workdir)
        except OSError as error:
            raise SpaceError(f"the sandbox could not be confined: {error}") from error
        self._place = place
        self._me = os.getpid()
        self._session = os.getsid(0)

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
