"""A local sandbox as the engine sees it: requests to its keeper over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from engine.sandboxes.contract import DEFAULT_MAX_OUTPUT, WORKDIR, Exec, Process, Sandbox, Tree
from engine.sandboxes.errors import (
    InvalidRequest,
    PermanentError,
    ProviderError,
    SandboxFileError,
    SandboxGone,
    TransientError,
)
from engine.sandboxes.local.inside.frames import MAX_BODY, Message, Unpacker, pack
from engine.sandboxes.outputs import joined
from engine.sandboxes.trees import PlainFile, absolute_path, plain_files, plain_text

_ANSWER_SECONDS = 30.0
_END_SECONDS = 20.0
_BATCH_BYTES = 4 * 1024 * 1024
_MAX_TIMEOUT = 366 * 86400.0


class KeeperConnection(asyncio.Protocol):
    """Frames to and from a keeper; every wait ends when the connection does."""

    def __init__(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.ready: asyncio.Future[Message] = loop.create_future()
        self.ended = asyncio.Event()
        self.last_words = ""
        self.clean = False  # whether the keeper has said that nothing is left
        self._unpacker = Unpacker()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}
        self._transport: asyncio.Transport | None = None
        self._ending = False

    # -- called by the event loop -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        for header, body in self._unpacker.feed(data):
            match header.get("op"):
                case "ready":
                    if not self.ready.done():
                        self.ready.set_result(header)
                case "failed":
                    if not self.ready.done():
                        self.ready.set_exception(PermanentError(header["text"]))
                case "gone":
                    self.last_words = header["text"]
                case "ended":
                    self.clean = True
                case _:
                    future = self._waiting.pop(header["id"], None)
                    if future is not None and not future.done():
                        future.set_result((header, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        gone = self.gone()
        for future in (self.ready, *self._waiting.values()):
            if not future.done():
                future.set_exception(gone)
        self._waiting.clear()
        if not self.ready.cancelled():
            self.ready.exception()  # nobody may be waiting for it

    # -- called by the sandbox ----------------------------------------------------------------------------------

    def gone(self) -> SandboxGone:
        why = f": {self.last_words}" if self.last_words else ""
        return SandboxGone(f"the sandbox {self.name} is gone{why}")

    def send(self, message: Message, body: bytes = b"") -> int:
        """Send a request and return its number. Raises SandboxGone."""
        if self._transport is None or self._transport.is_closing() or self._ending:
            raise self.gone()
        number = next(self._numbers)
        self._transport.write(pack({**message, "id": number}, body))
        return number

    async def request(self, message: Message, body: bytes = b"", *, seconds: float) -> tuple[Message, bytes]:
        """Send a request and wait for its answer; a cancelled ``exec`` is ended. Raises ProviderError."""
        number = self.send(message, body)
        future: asyncio.Future[tuple[Message, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(seconds):
                header, data = await future
        except TimeoutError as error:
            raise SandboxGone(
                f"the sandbox {self.name} did not answer within {seconds:.0f} s ({message['op']})"
            ) from error
        finally:
            if self._waiting.pop(number, None) is not None and message["op"] == "exec":
                with contextlib.suppress(SandboxGone):  # then the command is gone too
                    self.send({"op": "cancel", "job": number})
        if "file_error" in header:
            raise SandboxFileError(header["error"], path=header["path"], reason=header["file_error"])
        if "error" in header:
            raise TransientError(f"{self.name}: {header['error']}")
        return header, data

    async def end(self) -> bool:
        """Have the keeper end everything; whether it confirmed that nothing is left. Raises TransientError.

        The keeper hears it as the end of our stream, even one that has only just begun.
        """
        if self._transport is not None and not self._transport.is_closing() and not self._ending:
            self._transport.write_eof()
        self._ending = True
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self.ended.wait()
        except TimeoutError as error:
            raise TransientError(
                f"the sandbox {self.name} did not end within {_END_SECONDS:.0f} s"
            ) from error
        return self.clean


async def connect(name: str, ours: socket.socket) -> KeeperConnection:
    """Take over the engine's end of a keeper's connection."""
    _, connection = await asyncio.get_running_loop().create_unix_connection(
        lambda: KeeperConnection(name), sock=ours
    )
    return connection


class LocalSandbox(Sandbox):
    """See the contract."""

    def __init__(self, connection: KeeperConnection, isolation: str, workdir: str) -> None:
        super().__init__(connection.name, "local", isolation, workdir)
        self._connection = connection

    async def write_tree(self, files: Tree, root: str = WORKDIR) -> None:
        plain = plain_files(files)
        place = absolute_path(root)
        for batch in _batches(plain):
            listed = [[file.path, file.mode, len(file.content)] for file in batch]
            body = b"".join(file.content for file in batch)
            await self._connection.request(
                {"op": "write", "root": place, "files": listed}, body, seconds=_ANSWER_SECONDS
            )

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float,
        max_output: int = DEFAULT_MAX_OUTPUT,
        merge_stderr: bool = False,
    ) -> Exec:
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        words = [plain_text(word) for word in words]
        variables = {plain_text(key): plain_text(value) for key, value in (env or {}).items()}
        if not words or any("\0" in word for word in (*words, *variables, *variables.values())):
            raise InvalidRequest(
                "a command and its environment cannot hold NUL, and a command cannot be empty"
            )
        if not 0 < timeout <= _MAX_TIMEOUT or not 0 < max_output <= MAX_BODY // 8:
            raise InvalidRequest(
                f"a command's timeout ({timeout} s) and max_output ({max_output} bytes) must be above 0"
            )
        message = {
            "op": "exec",
            "words": words,
            "cwd": absolute_path(cwd or WORKDIR),
            "env": variables,
            "timeout": timeout,
            "max_output": max_output,
            "merge_stderr": merge_stderr,
        }
        header, body = await self._connection.request(message, seconds=timeout + _ANSWER_SECONDS)
        return _exec_result(header, body, merged=merge_stderr)

    async def processes(self) -> list[Process]:
        header, _ = await self._connection.request({"op": "processes"}, seconds=_ANSWER_SECONDS)
        return [Process(p["pid"], p["command"], p["status"], p["started_at"]) for p in header["processes"]]

    async def kill(self, process: int | Process) -> bool:
        pid = process.pid if isinstance(process, Process) else process
        if pid <= 1:
            raise InvalidRequest(f"{pid} is no process that can be killed")
        header, _ = await self._connection.request({"op": "kill", "pid": pid}, seconds=_ANSWER_SECONDS)
        if header["code"] not in {0, 3}:
            raise TransientError(f"process {pid} of the sandbox {self.name} would not end")
        return header["code"] == 0

    async def kill_all(self) -> None:
        header, _ = await self._connection.request({"op": "kill_all"}, seconds=_ANSWER_SECONDS)
        if header["code"] != 0:
            raise TransientError(f"processes of the sandbox {self.name} would not end")

    async def read(self, path: str, max_bytes: int = 16 * 1024 * 1024) -> bytes:
        if not 0 < max_bytes <= MAX_BODY:
            raise InvalidRequest(f"max_bytes = {max_bytes}: from 1 to {MAX_BODY} are possible")
        message = {"op": "read", "path": absolute_path(path), "max_bytes": max_bytes}
        _, body = await self._connection.request(message, seconds=_ANSWER_SECONDS)
        return body

    async def ensure_alive(self) -> None:
        try:
            await self._connection.request({"op": "ping"}, seconds=_ANSWER_SECONDS)
        except SandboxGone:
            raise
        except ProviderError as error:
            raise SandboxGone(str(error)) from error


def _batches(files: list[PlainFile]) -> list[list[PlainFile]]:
    batches: list[list[PlainFile]] = []
    size = _BATCH_BYTES
    for file in files:
        if size + len(file.content) + len(file.path) > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += len(file.content) + len(file.path)
    for batch in batches:
        for file in batch:
            if len(file.content) > MAX_BODY:
                raise InvalidRequest(f"{file.path} holds more than {MAX_BODY} bytes")
    return batches


def _exec_result(header: dict[str, Any], body: bytes, *, merged: bool) -> Exec:
    texts: list[str] = []
    at = 0
    truncated = False
    for head_size, tail_size, dropped in header["parts"]:
        head, tail = body[at : at + head_size], body[at + head_size : at + head_size + tail_size]
        at += head_size + tail_size
        truncated = truncated or dropped > 0
        texts.append(joined(head, tail, dropped))
    stdout = texts[0]
    stderr = "" if merged else texts[1]
    output = texts[2] if len(texts) > 2 else stdout or stderr
    return Exec(header["status"], header["exit_code"], stdout, stderr, output, truncated, header["seconds"])
