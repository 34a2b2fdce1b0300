"""One sandbox's keeper: makes the space, runs commands in it on the engine's word, and ends with it.

Requests are frames with an ``op`` and an ``id``; the answer carries the same id. ``exec`` answers when the command
has ended, all others at once. A keeper ends when the engine closes the connection, when its sandbox's time is up,
when the broker ends, or when something outside kills the sandbox; each time nothing of the sandbox is left.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from . import command, files, linux, procs
from .frames import Message, Unpacker, pack
from .jobs import Job
from .leftovers import Leftovers
from .space import Space, SpaceError, begin_space

_READ_BYTES = 1 << 18
_HELPER_SECONDS = 15.0
_KILLED = "something outside ended it"


MAX_MESSAGE = 128 * 1024  # bytes of an order


def run_keeper(orders: socket.socket, taken: int, broker_pid: int) -> NoReturn:
    """The keeper's whole life, in a process freshly forked from the broker.

    It waits for an order (see ``broker``) and says on ``taken`` that it has one.
    """
    code = 1
    try:
        code = _live(orders, taken, broker_pid)
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into the broker's loop
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


def _live(orders: socket.socket, taken: int, broker_pid: int) -> int:
    linux.die_with_parent(signal.SIGKILL, broker_pid)
    wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _nothing)
    stopping = _Flag()
    signal.signal(signal.SIGTERM, stopping.set)
    me = procs.read_entry(os.getpid())
    if me is None:
        return 1
    signature = f"{me.pid} {me.start_ticks}\n".encode()
    data, descriptors, _, _ = socket.recv_fds(orders, MAX_MESSAGE, 2)
    if not data:
        return 0
    os.write(taken, b"t")
    os.close(taken)
    orders.close()
    connection = socket.socket(fileno=descriptors[0])
    connection.set_inheritable(False)
    os.write(descriptors[1], signature)
    os.close(descriptors[1])
    return _keep(json.loads(data)["config"], connection, wake, stopping, broker_pid)


def _keep(
    config: dict[str, Any], connection: socket.socket, wake: int, stopping: _Flag, broker_pid: int
) -> int:
    try:
        space = begin_space(config)
        keeper = Keeper(config, connection, space, wake, stopping)  # while the space is being made
        space.enter(broker_pid)
    except SpaceError as error:
        connection.setblocking(True)
        connection.sendall(pack({"op": "failed", "text": str(error)}))
        return 2
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
        self._prelude = command.prelude(config["limits"])
        self._unpacker = Unpacker()
        self._outgoing = bytearray()
        self._jobs: dict[int, Job] = {}
        self._waiting: list[Message] = []
        self._helpers: dict[int, tuple[float, Callable[[int], None]]] = {}
        self._ended = False
        self._wake = wake
        ttl = config.get("ttl_seconds")
        self._ends_at = None if ttl is None else time.monotonic() + ttl
        connection.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._leftovers = Leftovers(self._selector)
        self._selector.register(connection, selectors.EVENT_READ, self._on_connection)
        self._selector.register(wake, selectors.EVENT_READ, self._on_wake)

    def serve(self) -> None:
        """Say that the sandbox is ready, and serve until its end, whatever brings it."""
        self._send({"op": "ready", "workdir": self._space.workdir})
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
            self._leftovers.on_time(now)

    def _patience(self) -> float | None:
        times = [job.ends_at for job in self._jobs.values() if job.ends_at is not None]
        times += self._leftovers.times()
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
                    self._waiting.append(header)
                    self._start_waiting()
                case "cancel":
                    self._cancel(header["job"])
                case "ping":
                    if self._space.is_dying():
                        self._say_goodbye(_KILLED)
                    else:
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
        except (OSError, ValueError) as error:
            self._send({"id": ident, "error": f"the sandbox's keeper failed: {error}"})

    def _start_waiting(self) -> None:
        """Start what was asked for, unless a command is just being ended: whatever begins meanwhile would be taken
        for one of its processes."""
        while self._waiting and not any(job.ending for job in self._jobs.values()):
            self._exec(self._waiting.pop(0))

    def _cancel(self, number: int) -> None:
        self._waiting = [header for header in self._waiting if header["id"] != number]
        job = self._jobs.get(number)
        if job is not None and not job.ending:
            self._cut(job, timed_out=False)

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
        belongings = command.Belongings(number, self._space.processes)
        out, out_write = os.pipe2(os.O_CLOEXEC)
        err, err_write = (None, out_write) if header["merge_stderr"] else os.pipe2(os.O_CLOEXEC)
        try:
            pid = command.start(self._prelude, header["words"], cwd, env, (out_write, err_write))
        except OSError as error:
            for fd in {out, err} - {None}:
                os.close(fd)
            if self._space.is_dying():
                self._say_goodbye(_KILLED)  # nothing can be started in a namespace whose init is gone
            elif error.errno == errno.E2BIG:
                self._send(*command.too_long(header))
            else:
                raise
            return
        finally:
            for fd in {out_write, err_write}:
                os.close(fd)
        belongings.begin(pid, [job.belongings for job in self._jobs.values()])
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
        job.belongings.close()
        for fd in list(job.streams):
            self._selector.unregister(fd)
            if job.drain(fd):
                # A background process still holds the other end: closing ours would kill it when it next writes.
                self._leftovers.take(fd)
            else:
                job.close(fd)
        self._send(*job.result())
        self._start_waiting()

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
            self._say_goodbye(_KILLED)
            return
        for pid, status in ended.items():
            helper = self._helpers.pop(pid, None)
            if helper is not None:
                helper[1](os.waitstatus_to_exitcode(status))
        for job in list(self._jobs.values()):
            if job.pid in ended:
                job.status = ended[job.pid]
                self._settle(job)
