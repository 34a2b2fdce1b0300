"""One sandbox's keeper: makes the space, runs commands in it on the engine's word, and ends with it.

Requests are frames with an ``op`` and an ``id``; the answer carries the same id. ``exec`` answers when the command
has ended, all others at once. A keeper ends when the engine closes the connection, when its sandbox's time is up,
when the broker ends, or when something outside kills the sandbox; each time nothing of the sandbox is left.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import command, files, linux, procs, seccomp
from .frames import Message, Unpacker, pack
from .jobs import Job, Leftover
from .space import Space, SpaceError, open_space

_READ_BYTES = 1 << 18
_MAX_LEFTOVERS = 128
_LEFTOVER_REST = 0.1
_HELPER_SECONDS = 15.0


def run_keeper(config: dict[str, Any], connection: socket.socket, record: int, broker_pid: int) -> NoReturn:
    """The keeper's whole life, in a process freshly forked from the broker. ``record``: where to write who it is."""
    code = 1
    try:
        code = _live(config, connection, record, broker_pid)
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into the broker's loop
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _live(config: dict[str, Any], connection: socket.socket, record: int, broker_pid: int) -> int:
    linux.die_with_parent(signal.SIGKILL, broker_pid)
    me = procs.read_entry(os.getpid())
    if me is None:
        return 1
    os.write(record, f"{me.pid} {me.start_ticks}\n".encode())
    os.close(record)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    stopping = _Flag()
    signal.signal(signal.SIGTERM, stopping.set)
    try:
        space = open_space(config, broker_pid)
    except SpaceError as error:
        connection.sendall(pack({"op": "failed", "text": str(error)}))
        return 2
    keeper = Keeper(config, connection, space, wake_read, stopping)
    clean = False
    try:
        keeper.serve()
    finally:
        clean = space.end()
    if clean:
        keeper.farewell()
    return 0


class _Flag:
    """Set by a signal."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self, *_: object) -> None:
        self.is_set = True


def _nothing(*_: object) -> None:
    """A handler, so that the wake-up descriptor is written to."""


class Keeper:
    """See the module."""

    def __init__(
        self, config: dict[str, Any], connection: socket.socket, space: Space, wake: int, stopping: _Flag
    ) -> None:
        self._config = config
        self._connection = connection
        self._space = space
        self._stopping = stopping
        self._filter = seccomp.build(own_network=space.private_pids) if config["seccomp"] else None
        self._unpacker = Unpacker()
        self._outgoing = bytearray()
        self._jobs: dict[int, Job] = {}
        self._leftovers: list[Leftover] = []
        self._helpers: dict[int, tuple[float, Callable[[int], None]]] = {}
        self._ended = False
        self._wake = wake
        ttl = config.get("ttl_seconds")
        self._ends_at = None if ttl is None else time.monotonic() + ttl
        connection.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(connection, selectors.EVENT_READ, self._on_connection)
        self._selector.register(wake, selectors.EVENT_READ, self._on_wake)
        self._send({"op": "ready", "workdir": space.workdir})

    def serve(self) -> None:
        """Until the sandbox's end, whatever brings it."""
        while not self._ended and not self._stopping.is_set:
            for key, mask in self._selector.select(self._patience()):
                key.data(mask)
            now = time.monotonic()
            if self._ends_at is not None and now >= self._ends_at:
                self._say_goodbye("its time to live is over")
                return
            for job in list(self._jobs.values()):
                if job.ends_at is not None and now >= job.ends_at:
                    self._cut(job, timed_out=True)
            for pid, (deadline, _) in list(self._helpers.items()):
                if now >= deadline:
                    procs.send(pid, signal.SIGKILL)
            self._drain_leftovers(now)

    def _patience(self) -> float | None:
        times = [job.ends_at for job in self._jobs.values() if job.ends_at is not None]
        times += [leftover.rests_until for leftover in self._leftovers if leftover.rests_until is not None]
        times += [deadline for deadline, _ in self._helpers.values()]
        if self._ends_at is not None:
            times.append(self._ends_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    # -- the connection -----------------------------------------------------------------------------------------

    def _on_connection(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ:
            return
        try:
            data = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._ended = True
            return
        for header, body in self._unpacker.feed(data):
            self._handle(header, body)

    def _send(self, header: Message, body: bytes = b"") -> None:
        self._outgoing += pack(header, body)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = self._connection.send(self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            pass
        except ConnectionError:
            self._ended = True
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._connection, events, self._on_connection)

    def _say_goodbye(self, why: str) -> None:
        self._ended = True
        self._connection.setblocking(True)
        self._connection.settimeout(1.0)
        with contextlib.suppress(OSError):
            self._connection.sendall(bytes(self._outgoing) + pack({"op": "gone", "text": why}))

    def farewell(self) -> None:
        """Say, last of all, that nothing of the sandbox is left."""
        self._connection.settimeout(1.0)
        with contextlib.suppress(OSError):
            self._connection.sendall(pack({"op": "ended"}))

    # -- requests -----------------------------------------------------------------------------------------------

    def _handle(self, header: Message, body: bytes) -> None:
        ident = header["id"]
        try:
            match header["op"]:
                case "exec":
                    self._exec(header)
                case "cancel":
                    job = self._jobs.get(header["job"])
                    if job is not None and not job.ending:
                        self._cut(job, timed_out=False)
                case "ping":
                    self._send({"id": ident})
                case "write":
                    self._write(header, body)
                    self._send({"id": ident})
                case "read":
                    path = self._resolve(header["path"])
                    self._send({"id": ident}, files.read_file(path, header["max_bytes"]))
                case "processes":
                    self._send({"id": ident, "processes": self._list()})
                case "kill":
                    pid = int(header["pid"])
                    self._run_helper(lambda: self._kill_code(pid), self._reply_with_code(ident))
                case "kill_all":
                    self._run_helper(self._kill_all_code, self._reply_with_code(ident))
                case other:
                    self._send({"id": ident, "error": f"there is no request {other}"})
        except files.FileTrouble as trouble:
            self._send(
                {"id": ident, "file_error": trouble.reason, "path": trouble.path, "error": str(trouble)}
            )
        except OSError as error:
            self._send({"id": ident, "error": f"the sandbox's keeper failed: {error}"})

    def _resolve(self, path: str) -> str:
        """A path of the contract's (below /work) where this space has it."""
        if path == "/work" or path.startswith("/work/"):
            return self._space.workdir + path[len("/work") :]
        return path

    def _write(self, header: Message, body: bytes) -> None:
        entries: list[tuple[str, int, bytes]] = []
        at = 0
        for path, mode, size in header["files"]:
            entries.append((path, mode, body[at : at + size]))
            at += size
        files.write_files(self._resolve(header["root"]), entries)

    def _exec(self, header: Message) -> None:
        cwd = self._resolve(header["cwd"])
        number = header["id"]
        env = command.environment(self._config, self._space.home, cwd, header["env"], number)
        plan = command.Plan(header["words"], cwd, env, self._config["limits"])
        plan.call_filter = self._filter
        belongings = command.Belongings(number, self._space.processes, alone=not self._jobs)
        for other in self._jobs.values():
            other.belongings.alone = False
        out, out_write = os.pipe2(os.O_CLOEXEC)
        err, err_write = (None, out_write) if header["merge_stderr"] else os.pipe2(os.O_CLOEXEC)
        try:
            pid = command.start(plan, out_write, err_write)
        except OSError:
            for fd in {out, err} - {None}:
                os.close(fd)
            raise
        finally:
            for fd in {out_write, err_write}:
                os.close(fd)
        job = Job(header, pid, out, err, belongings)
        self._jobs[number] = job
        for fd in job.streams:
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, self._reader(job, fd))

    def _reader(self, job: Job, fd: int) -> Callable[[int], None]:
        def read(_: int) -> None:
            # The command may have been settled within the same round of events.
            if fd in job.streams and not job.read(fd):
                self._selector.unregister(fd)
                job.close(fd)

        return read

    def _cut(self, job: Job, *, timed_out: bool) -> None:
        """End a command and everything that it started; a helper inside the space does it."""
        job.cut(timed_out=timed_out)
        grace = self._config["grace_seconds"] if timed_out else 0.0

        def end() -> int:
            return 0 if command.end(job.belongings.find, grace, self._space.last_resort) else 4

        def settle(_: int) -> None:
            job.ending = False
            self._settle(job)

        self._run_helper(end, settle, seconds=grace + _HELPER_SECONDS)

    def _settle(self, job: Job) -> None:
        """Answer for a command that is over."""
        if not job.over or self._jobs.pop(job.ident, None) is None:
            return
        for fd in list(job.streams):
            self._selector.unregister(fd)
            if job.drain(fd):
                # A background process still holds the other end: closing ours would kill it when it next writes.
                self._leftovers.append(Leftover(fd))
            else:
                job.close(fd)
        while len(self._leftovers) > _MAX_LEFTOVERS:
            self._forget(self._leftovers[0])
        header, body = job.result()
        self._send(header, body)

    # -- what background processes still say --------------------------------------------------------------------

    def _drain_leftovers(self, now: float) -> None:
        """Read and drop it, slowly: a flood in the background is held back by its full pipe."""
        for leftover in list(self._leftovers):
            if leftover.rests_until is not None and now >= leftover.rests_until:
                leftover.rests_until = None
                self._selector.register(leftover.fd, selectors.EVENT_READ, self._dropper(leftover))
            elif leftover.rests_until is None and not leftover.watched:
                leftover.watched = True
                self._selector.register(leftover.fd, selectors.EVENT_READ, self._dropper(leftover))

    def _dropper(self, leftover: Leftover) -> Callable[[int], None]:
        def drop(_: int) -> None:
            if leftover not in self._leftovers:
                return
            try:
                data = os.read(leftover.fd, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._forget(leftover)
                return
            self._selector.unregister(leftover.fd)
            leftover.rests_until = time.monotonic() + _LEFTOVER_REST

        return drop

    def _forget(self, leftover: Leftover) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(leftover.fd)
        os.close(leftover.fd)
        self._leftovers.remove(leftover)

    # -- processes ----------------------------------------------------------------------------------------------

    def _list(self) -> list[dict[str, Any]]:
        booted = self._config["boot_time"]
        found = []
        for entry in sorted(self._space.processes(), key=lambda entry: (entry.start_ticks, entry.pid)):
            text = procs.command_of(entry.pid)
            if text:
                status = "stopped" if entry.state in "Tt" else "running"
                at = procs.started_at(entry, booted)
                found.append({"pid": entry.pid, "command": text, "status": status, "started_at": at})
        return found

    def _kill_code(self, pid: int) -> int:
        """0 where the process was there and is not any more, 3 where it was not there, 4 where it would not go."""
        if all(entry.pid != pid for entry in self._space.processes()):
            return 3

        def victims() -> list[procs.Entry]:
            mine = self._space.processes()
            return [entry for entry in mine if entry.pid == pid] + procs.descendants(pid, mine)

        return 0 if procs.sweep(victims, 5.0) else 4

    def _kill_all_code(self) -> int:
        return 0 if self._space.kill_everything() else 4

    def _reply_with_code(self, ident: int) -> Callable[[int], None]:
        return lambda code: self._send({"id": ident, "code": code})

    def _run_helper(
        self, act: Callable[[], int], then: Callable[[int], None], *, seconds: float = _HELPER_SECONDS
    ) -> None:
        """Run ``act`` in a forked child, which is inside the pid namespace, and hand its exit code to ``then``."""
        pid = os.fork()
        if pid == 0:
            code = 5
            try:
                signal.set_wakeup_fd(-1)
                code = act()
            except BaseException as error:  # noqa: BLE001 - a forked child must never return into the keeper's code
                sys.excepthook(type(error), error, error.__traceback__)
            finally:
                os._exit(code)
        self._helpers[pid] = (time.monotonic() + seconds, then)

    def _on_wake(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        ended = procs.reap()
        if self._space.has_ended(ended):
            self._say_goodbye("something outside ended it")
            return
        for pid, status in ended.items():
            helper = self._helpers.pop(pid, None)
            if helper is not None:
                helper[1](os.waitstatus_to_exitcode(status))
        for job in list(self._jobs.values()):
            if job.pid in ended:
                job.status = ended[job.pid]
                self._settle(job)
