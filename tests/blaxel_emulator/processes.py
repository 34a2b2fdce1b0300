"""The commands of one sandbox, as the server inside it keeps them.

A command runs through the local sandbox's ``exec``, which keeps its output until it ends. One that is streamed
writes into files instead, which are read while it runs.
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.sandboxes import ProviderError, Sandbox, SandboxFileError
from tests.blaxel_emulator.answers import Refusal, edge_error, gone, http_date, sandbox_error

if TYPE_CHECKING:
    from tests.blaxel_emulator.world import Box, World

LIST_BYTES = 64 * 1024  # of each stream in ``get`` and ``list``
RESULT_BYTES = 4 * 1024 * 1024  # in a waited result and in ``logs``
KEPT_BYTES = 32 * 1024 * 1024
KEEP_ALIVE_SECONDS = 600.0
HUNG_SECONDS = 86400
_FOREVER = 7 * 86400.0
_STARTED_SECONDS = 30.0
_RECORD_PID = 'echo $$ > {pid}; exec /bin/sh -c "$1"'
_RECORD_ALL = 'echo $$ > {pid}; exec /bin/sh -c "$1" >>{out} 2>>{err}'


@dataclass
class Running:
    """One process. ``status`` and ``exit_code`` as the real server has them: 0 while it runs, -1 after a signal."""

    number: int
    name: str
    command: str
    workdir: str
    keep_alive: bool
    files: str  # the start of the names of its files in the sandbox
    streamed: bool
    pid: str = "0"
    status: str = "running"
    exit_code: int = 0
    started_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    stdout: str = ""
    stderr: str = ""
    logs: str = ""
    ended_by: str = ""  # "killed" or "stopped", when the API did it
    done: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def to_json(self, limit: int) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "name": self.name,
            "command": self.command,
            "status": self.status,
            "startedAt": http_date(self.started_at),
            "completedAt": "" if self.ended_at is None else http_date(self.ended_at),
            "exitCode": self.exit_code,
            "workingDir": self.workdir,
            "logs": tail(self.logs, limit),
            "stdout": tail(self.stdout, limit),
            "stderr": tail(self.stderr, limit),
            "keepAlive": self.keep_alive,
        }


def tail(text: str, limit: int) -> str:
    if len(text) <= limit // 4:
        return text
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[-limit:].decode("utf-8", "replace")


class Processes:
    """See the module. ``identifier``: a name or a pid."""

    def __init__(self, world: World, box: Box) -> None:
        self._world, self._box = world, box
        self._numbers = itertools.count(1)
        self.all: list[Running] = []

    def find(self, identifier: str) -> Running:
        """The latest of that name or pid. Raises Refusal."""
        for process in reversed(self.all):
            if identifier in (process.name, process.pid):
                return process
        raise Refusal(sandbox_error(404, f"process not found: {identifier}"))

    async def start(self, request: dict[str, Any], *, streamed: bool) -> Running:
        """Start a command and return when it runs. Raises Refusal."""
        sandbox = self._sandbox()
        command = request.get("command")
        if not isinstance(command, str) or not command.strip():
            raise Refusal(sandbox_error(400, "command is required"))
        number = next(self._numbers)
        name = request.get("name") or f"proc-{number}"
        if any(process.name == name and process.status == "running" for process in self.all):
            raise Refusal(sandbox_error(400, f"process with name '{name}' already exists and is running"))
        if "/work" in command:
            self._box.workdir_made = True
        # Not /work, which a real image does not have: whoever forgets workingDir should notice.
        workdir = request.get("workingDir") or "/tmp"
        await self._check_directory(sandbox, workdir)
        place = "/tmp" if sandbox.workdir == "/work" else sandbox.workdir
        keep_alive = bool(request.get("keepAlive"))
        process = Running(
            number, name, command, workdir, keep_alive, f"{place}/.sandbox-api-{number}", streamed
        )
        subject = f"POST /{self._world.settings.workspace}/sandboxes/{self._box.name}/process {command}"
        for fault in self._world.faults.draw(subject, ("slow_command", "hung_command")):
            seconds = HUNG_SECONDS if fault.kind == "hung_command" else self._world.faults.seconds(fault)
            command = f"sleep {seconds:.2f}\n{command}"
        env = {str(key): str(value) for key, value in (request.get("env") or {}).items()}
        self.all.append(process)
        process.task = self._world.spawn(self._run(sandbox, process, command, env), f"process {name}")
        await self._started(sandbox, process)
        if keep_alive:
            limit = request.get("timeout")
            seconds = KEEP_ALIVE_SECONDS if limit is None else float(limit)
            if seconds > 0:
                asyncio.get_running_loop().call_later(seconds, self._overdue, process)
        return process

    async def _check_directory(self, sandbox: Sandbox, workdir: str) -> None:
        missing = Refusal(sandbox_error(422, f"working directory does not exist: {workdir}"))
        if workdir == "/work":
            if not self._box.workdir_made:
                raise missing
        elif workdir != "/tmp":
            found = await sandbox.exec(["test", "-d", workdir], timeout=60)
            if found.exit_code != 0:
                raise missing

    async def _run(self, sandbox: Sandbox, process: Running, command: str, env: dict[str, str]) -> None:
        script = _RECORD_ALL if process.streamed else _RECORD_PID
        files = process.files
        words = [
            "/bin/sh",
            "-c",
            script.format(pid=f"{files}.pid", out=f"{files}.out", err=f"{files}.err"),
            "sh",
        ]
        try:
            done = await sandbox.exec(
                [*words, command], cwd=process.workdir, env=env, timeout=_FOREVER, max_output=KEPT_BYTES
            )
        except ProviderError:
            process.status, process.exit_code = "killed", -1
        else:
            process.stdout, process.stderr, process.logs = done.stdout, done.stderr, done.output
            if done.status == "completed":
                process.exit_code = done.exit_code or 0
                process.status = "completed" if process.exit_code == 0 else "failed"
            else:
                process.exit_code, process.status = -1, process.ended_by or "failed"
            if process.streamed:
                await self.refresh(sandbox, process, final=True)
        finally:
            if process.status == "running":
                process.status, process.exit_code = "killed", -1
            process.ended_at = time.time()
            process.done.set()
        self._world.tell(
            "process",
            self._box,
            process=process.name,
            command=process.command[:8000],
            status=process.status,
            exit_code=process.exit_code,
            started_at=process.started_at,
            alive=self._box.sandbox is not None,
        )

    async def _started(self, sandbox: Sandbox, process: Running) -> None:
        """Until the command has a pid; raises Refusal where the sandbox ended meanwhile."""
        deadline = time.monotonic() + _STARTED_SECONDS
        while not process.done.is_set() and time.monotonic() < deadline:
            try:
                text = await sandbox.read(f"{process.files}.pid")
            except SandboxFileError:
                text = b""
            except ProviderError as error:
                raise Refusal(gone(self._box.name)) from error
            if text.strip():
                process.pid = text.decode().strip()
                return
            await asyncio.sleep(0.002)

    async def refresh(self, sandbox: Sandbox, process: Running, *, final: bool = False) -> None:
        """Read a streamed process's files; until the ``final`` time without a character that is not whole yet."""
        for stream, suffix in (("stdout", "out"), ("stderr", "err")):
            try:
                data = await sandbox.read(f"{process.files}.{suffix}", KEPT_BYTES)
            except (SandboxFileError, ProviderError):
                data = b""
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final)
            process.logs += text[len(getattr(process, stream)) :]
            setattr(process, stream, text)

    async def wait(self, process: Running, seconds: float | None) -> bool:
        """Whether it ended within the time. Raises Refusal where the sandbox died meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await process.done.wait()
        except TimeoutError:
            return False
        if self._box.sandbox is None:
            raise Refusal(edge_error(502, "UPSTREAM_ERROR", "upstream connection closed", retryable=True))
        return True

    async def signal(self, identifier: str, how: str) -> None:
        """SIGKILL ("killed") or SIGTERM ("stopped") to its group. Raises Refusal."""
        process = self.find(identifier)
        if process.status != "running":
            raise Refusal(sandbox_error(404, f"process {identifier} is not running"))
        process.ended_by = how
        if process.pid == "0" and process.task is not None:  # it never came to run
            process.task.cancel()
            return
        number = "KILL" if how == "killed" else "TERM"
        await self._sandbox().exec(f"kill -{number} -{process.pid}", timeout=60)

    def _overdue(self, process: Running) -> None:
        if process.status == "running" and self._box.sandbox is not None:
            self._world.spawn(self.signal(process.pid, "killed"), f"deadline of {process.name}")

    def _sandbox(self) -> Sandbox:
        if self._box.sandbox is None:
            raise Refusal(gone(self._box.name))
        return self._box.sandbox

    async def ended(self) -> None:
        """The sandbox is gone; wait until its commands know."""
        await asyncio.gather(*(process.done.wait() for process in self.all))
