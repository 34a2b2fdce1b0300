"""The engine's side of the broker: starts it, asks it for keepers, notices its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from engine.sandboxes.errors import PermanentError, TransientError
from engine.sandboxes.local.inside.keeper import MAX_MESSAGE

_LOG = logging.getLogger(__name__)
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from inside.broker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
_START_SECONDS = 30.0
_END_SECONDS = 5.0

type Future = asyncio.Future[dict[str, Any]]


class BrokerLink:
    """A running broker. ``pid`` is its process, ``uid`` the user that its sandboxes' processes are on this machine."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket) -> None:
        self.pid = process.pid
        self.uid = -1
        self._process = process
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, Future] = {}
        self._next = 1
        self._ready: Future = self._loop.create_future()
        self._closed = False
        self._log_task = asyncio.create_task(self._log_stderr(), name="sandbox-broker-log")
        self._loop.add_reader(connection, self._on_readable)

    @classmethod
    async def start(cls) -> BrokerLink:
        """Start a broker and wait until it serves. Raises TransientError, PermanentError."""
        if not sys.platform.startswith("linux"):
            raise PermanentError('local sandboxes need Linux; use provider = "blaxel" on this machine')
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        descriptor = theirs.fileno()
        words = ["-I", "-S", "-c", _BOOT, str(Path(__file__).parent), str(descriptor), str(os.getpid())]
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(descriptor,),
                env={"LANG": "C.UTF-8"},
                cwd="/",
                start_new_session=True,  # ctrl-c in the terminal is the engine's to handle
            )
        except OSError as error:
            ours.close()
            raise TransientError(
                f"the process that starts sandboxes could not be started: {error}"
            ) from error
        finally:
            theirs.close()
        link = cls(process, ours)
        try:
            async with asyncio.timeout(_START_SECONDS):
                link.uid = (await link._ready)["uid"]
        except TimeoutError as error:
            await link.aclose()
            raise TransientError(
                f"the sandboxes' broker was not ready within {_START_SECONDS:.0f} s"
            ) from error
        except BaseException:
            await asyncio.shield(link.aclose())
            raise
        return link

    @property
    def alive(self) -> bool:
        return not self._closed and self._process.returncode is None

    async def create(
        self, config: dict[str, Any], keeper_end: socket.socket, record: int, ready: Future
    ) -> None:
        """Have a keeper forked that holds ``keeper_end`` and writes who it is into ``record``.

        ``ready`` gets the error where none could be forked. Raises TransientError, PermanentError.
        """
        ident = self._next
        self._next += 1
        message = json.dumps({"op": "create", "id": ident, "config": config}).encode()
        if len(message) >= MAX_MESSAGE:
            raise PermanentError("the environment given to a sandbox is too large: 100 KiB at most")
        self._waiting[ident] = ready
        ready.add_done_callback(lambda _: self._waiting.pop(ident, None))
        await self._send(message, [keeper_end.fileno(), record])

    async def _send(self, message: bytes, descriptors: list[int]) -> None:
        while True:
            if self._closed:
                raise TransientError("the sandboxes' broker has ended")
            try:
                socket.send_fds(self._connection, [message], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.002)  # its queue is full; it works it off within milliseconds
            except OSError as error:
                self._end()
                raise TransientError("the sandboxes' broker has ended") from error

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        message = json.loads(data)
        if message.get("op") == "ready":
            if not self._ready.done():
                self._ready.set_result(message)
            return
        waiting = self._waiting.get(message["id"])
        if waiting is not None and not waiting.done():
            waiting.set_exception(TransientError(message["error"]))

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._connection)
        self._connection.close()
        for future in (self._ready, *list(self._waiting.values())):
            if not future.done():
                future.set_exception(TransientError("the sandboxes' broker has ended"))
        # Nobody may be waiting for it any more.
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()

    async def aclose(self) -> None:
        """End the broker, and with it whatever sandboxes it still has."""
        self._end()
        ended = asyncio.create_task(self._process.wait())
        await asyncio.wait({ended}, timeout=_END_SECONDS)
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        # What still holds its standard error may not end with it: a keeper in a call that the kernel does not break off.
        await asyncio.wait({ended, self._log_task}, timeout=_END_SECONDS)
        ended.cancel()
        self._log_task.cancel()

    async def _log_stderr(self) -> None:
        """Whatever the broker, or a keeper, has to complain about goes to the log."""
        stream = self._process.stderr
        if stream is None:
            return
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # a line beyond the buffer was dropped
            if not line:
                return
            _LOG.warning("sandbox broker: %s", line.decode("utf-8", "replace").rstrip())
