"""The local Loops server as a child process: one for each project directory, shared by whoever needs it.

The server reads from a named pipe and ends when nobody holds that pipe open for writing any more. Every process that
uses the server holds it open, so the server outlives the one that started it, and dies with the last one, however
that one died.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.hosting.errors import HostingError
from engine.store.processes import process_started, same_process
from engine.store.schema import STORE_DIRECTORY

START_SECONDS = 90.0
"""How long a start may take: importing and binding on a busy machine; models load at first use."""
STOP_SECONDS = 10.0
_LEFTOVER_SECONDS = 15.0
WATCH_SECONDS = 0.5
_KEY_VARIABLE = "LOOPS_TUI_SERVER_KEY"
_LOG_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is, as it says so itself. The key is left out of ``repr``."""

    url: str
    key: str
    model: str
    pid: int
    pid_started: float

    def __repr__(self) -> str:
        return f"ServerAddress(url={self.url!r}, model={self.model!r}, pid={self.pid})"

    @property
    def alive(self) -> bool:
        return same_process(self.pid, self.pid_started)


class LocalServer:
    """Start or find the server of a project directory, and hold on to it. Safe to use from several threads."""

    module = "engine.local_loops"  # what a child runs

    def __init__(self, project_dir: Path) -> None:
        self.directory = project_dir.resolve() / STORE_DIRECTORY / "loops-server"
        self.log_path = self.directory.parent / "loops-server.log"
        self._address_path = self.directory / "address.json"
        self._pipe_path = self.directory / "alive"
        self._lock = threading.Lock()
        self._address: ServerAddress | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._hold: int | None = None
        self._log_start = 0  # where the log of the server in hand begins

    def start(self, timeout: float = START_SECONDS) -> ServerAddress:
        """The address of a server that serves: the one in hand, another process's, or a new one. Blocks.

        Raises HostingError with the server's own last words where none comes up in time.
        """
        with self._lock:
            if self._address is not None and self._address.alive:
                return self._address
            self._let_go()
            try:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                return self._start(time.monotonic() + timeout)
            except OSError as error:
                raise HostingError(f"the local Loops server cannot use {self.directory}: {error}") from error

    def running(self) -> ServerAddress | None:
        """The project's server if one is up, whoever started it. Starts nothing and holds nothing."""
        address = self._read_address()
        return address if address is not None and address.alive else None

    def close(self) -> None:
        """Let go of the server; it ends if nobody else uses it. Waits for a child of this process, bounded."""
        with self._lock:
            self._let_go()

    async def until_dead(self) -> str:
        """Return one sentence as soon as the server's process is gone. Runs until cancelled."""
        address = self._address
        if address is None:
            return "the local Loops server was never started"
        while self._alive(address):  # noqa: ASYNC110 - a process of others tells nobody when it ends
            await asyncio.sleep(WATCH_SECONDS)
        return self.epitaph()

    def epitaph(self) -> str:
        """How the server ended, in one sentence."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            how = ""
        elif status < 0:
            how = f" (killed by signal {-status})"
        else:
            how = f" (exit status {status})"
        words = self._last_words()
        return f"the local Loops server ended{how}" + (
            f": {words}" if words else f"; its log is {self.log_path}"
        )

    @property
    def dead(self) -> bool:
        """Whether there was a server and it is gone."""
        return self._address is not None and not self._alive(self._address)

    def _alive(self, address: ServerAddress) -> bool:
        if self._process is not None and self._process.pid == address.pid:
            return self._process.poll() is None
        return address.alive

    # -- starting -----------------------------------------------------------------------------------------------

    def _start(self, deadline: float) -> ServerAddress:
        with self._only_one(deadline):
            give_up = min(deadline, time.monotonic() + _LEFTOVER_SECONDS)
            while True:
                address = self._attach()
                if address is not None:
                    return address
                failure = self._spawn(deadline)
                if failure is None:
                    assert self._address is not None
                    return self._address
                self._let_go()
                # An earlier server may still be putting its things away; that takes a moment, not long.
                if "is in use" not in failure or time.monotonic() > give_up:
                    raise HostingError(failure)
                time.sleep(0.2)

    @contextmanager
    def _only_one(self, deadline: float) -> Iterator[None]:
        """Of several processes that start a server at once, one does; the others find it then."""
        lock = os.open(self.directory / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise HostingError(
                            f"another process has been starting the local Loops server in {self.directory} for too long"
                        ) from error
                    time.sleep(0.05)
            yield
        finally:
            os.close(lock)

    def _attach(self) -> ServerAddress | None:
        """Hold on to a server that another process started, if there is one."""
        address = self._read_address()
        if address is None or not address.alive:
            return None
        try:
            # Without a reader this fails at once: then the server is ending.
            hold = os.open(self._pipe_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        # One that saw nobody hold the pipe a moment ago ends all the same, and has said so.
        if not address.alive or (self.directory / "ending").exists():
            os.close(hold)
            return None
        self._hold, self._address = hold, address
        return address

    def _spawn(self, deadline: float) -> str | None:
        """Start a child and wait for its line; the sentence of its failure, or None."""
        key = secrets.token_urlsafe(24)
        read_end, hold = self._make_pipe()
        log = self._open_log()
        self._log_start = os.fstat(log).st_size
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, "--dir", str(self.directory), "--port", "0",
                 "--key-env", _KEY_VARIABLE, "--exit-with-stdin"],
                stdin=read_end,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, _KEY_VARIABLE: key},
                # ctrl+c in the terminal is for us: we drain first and need the server for that.
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            os.close(hold)
            raise
        finally:
            os.close(read_end)
            os.close(log)
        self._hold = hold
        said = self._first_line(self._process, deadline)
        started = process_started(self._process.pid)
        if said is None or started is None:
            return self._start_failure(self._process)
        self._address = ServerAddress(
            str(said["url"]), str(said["key"]), str(said["model"]), self._process.pid, started
        )
        self._write_address(self._address)
        return None

    def _make_pipe(self) -> tuple[int, int]:
        """A reading and a writing end of a fresh named pipe."""
        with suppress(FileNotFoundError):
            self._pipe_path.unlink()
        os.mkfifo(self._pipe_path, 0o600)
        read_end = os.open(self._pipe_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        hold = os.open(self._pipe_path, os.O_WRONLY | os.O_CLOEXEC)
        os.set_blocking(read_end, True)
        return read_end, hold

    def _first_line(self, process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any] | None:
        """The JSON line a server prints when it serves; None where it ends or is silent until the deadline."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        read = b""
        while b"\n" not in read:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            more = os.read(descriptor, 4096) if ready else b""
            if not more:
                return None
            read += more
        try:
            said = json.loads(read.split(b"\n", 1)[0])
        except ValueError:
            return None
        return said if isinstance(said, dict) and {"url", "key", "model"} <= said.keys() else None

    def _start_failure(self, process: subprocess.Popen[bytes]) -> str:
        # A child that closed its output is ending; one that is merely silent is ended.
        try:
            status = process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
            return f"the local Loops server did not come up in time; its log is {self.log_path}"
        words = self._last_words()
        return words or f"the local Loops server ended at once (status {status}); its log is {self.log_path}"

    # -- files --------------------------------------------------------------------------------------------------

    def _read_address(self) -> ServerAddress | None:
        try:
            return ServerAddress(**json.loads(self._address_path.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None  # none yet, or half of one: a new server writes it anew

    def _write_address(self, address: ServerAddress) -> None:
        temporary = self._address_path.with_suffix(f".{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(address), file)
        temporary.replace(self._address_path)

    def _open_log(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES:
            flags |= os.O_TRUNC
        return os.open(self.log_path, flags, 0o600)

    def _last_words(self) -> str:
        """What the server in hand said of itself last, if it did."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(self._log_start)
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        told = [line.strip() for line in lines if line.startswith("local Loops server:")]
        return told[-1] if told else ""

    def _let_go(self) -> None:
        hold, self._hold = self._hold, None
        process, self._process = self._process, None
        address, self._address = self._address, None
        if hold is not None:
            os.close(hold)
        if process is None:
            return
        assert process.stdout is not None
        process.stdout.close()
        if address is not None and self._others_hold():
            return  # it goes on for them
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)

    def _others_hold(self) -> bool:
        """Whether another process holds the pipe open for writing: then reading it would wait instead of ending."""
        try:
            reader = os.open(self._pipe_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            os.read(reader, 1)
        except BlockingIOError:
            return True
        finally:
            os.close(reader)
        return False
