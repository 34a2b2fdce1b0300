"""A Blaxel sandbox with the neutral face, and the flavour that hands out the SDK's own instance."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engine.sandboxes.blaxel.commands import Commands, Order
from engine.sandboxes.blaxel.connection import Connection
from engine.sandboxes.blaxel.files import Files
from engine.sandboxes.blaxel.processes import Processes
from engine.sandboxes.contract import (
    DEFAULT_MAX_OUTPUT,
    WORKDIR,
    Exec,
    Isolation,
    Process,
    Sandbox,
    Tree,
)
from engine.sandboxes.errors import InvalidRequest, ProviderError, SandboxGone
from engine.sandboxes.trees import absolute_path, plain_files, plain_text

if TYPE_CHECKING:
    from blaxel.core import SandboxInstance

_MAX_TIMEOUT = 24 * 3600.0
_MAX_OUTPUT = 4 * 1024 * 1024


class BlaxelSandbox(Sandbox):
    """See the contract. Where it differs: a deadline counts in whole seconds, rounded up; what a command's deadline
    cuts gets no SIGTERM first; the service keeps the last 4 MiB of each stream."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.name, "blaxel", str(Isolation.REMOTE), WORKDIR)
        self._link = connection
        self._commands = Commands(connection)
        self._files = Files(connection, self._commands)
        self._processes = Processes(connection, self._commands)

    async def client(self) -> SandboxInstance:
        """The SDK's own instance of this sandbox, its client ready and ``/work`` there.

        Commands that go through it are the episode's own: they have no deadline of ours. Raises ProviderError.
        """
        if not self._link.handed_out:
            await self._commands.short(f"mkdir -p {WORKDIR}", "preparing the sandbox")
            self._link.handed_out = True
        return self._link.box

    async def write_tree(self, files: Tree, root: str = WORKDIR) -> None:
        plain = plain_files(files)
        if plain:
            await self._files.write(plain, absolute_path(root))

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
        words = [command] if isinstance(command, str) else list(command)
        variables = {plain_text(key): plain_text(value) for key, value in (env or {}).items()}
        if not words or any("\0" in word for word in (*words, *variables, *variables.values())):
            raise InvalidRequest(
                "a command and its environment cannot hold NUL, and a command cannot be empty"
            )
        if not 0 < timeout <= _MAX_TIMEOUT or not 0 < max_output <= _MAX_OUTPUT:
            raise InvalidRequest(
                f"a command's timeout ({timeout} s) must be above 0 and at most {_MAX_TIMEOUT:.0f} s, its max_output "
                f"({max_output} bytes) above 0 and at most {_MAX_OUTPUT}"
            )
        line = (
            plain_text(command) if isinstance(command, str) else f"exec {shlex.join(map(plain_text, words))}"
        )
        where = absolute_path(cwd or WORKDIR)
        return await self._commands.run(Order(line, where, variables, timeout, max_output, merge_stderr))

    async def processes(self) -> list[Process]:
        return await self._processes.list()

    async def kill(self, process: int | Process) -> bool:
        pid = process.pid if isinstance(process, Process) else process
        if pid <= 1:
            raise InvalidRequest(f"{pid} is no process that can be killed")
        return await self._processes.kill(pid)

    async def kill_all(self) -> None:
        await self._processes.kill_all()

    async def read(self, path: str, max_bytes: int = 16 * 1024 * 1024) -> bytes:
        return await self._files.read(absolute_path(path), max_bytes)

    async def ensure_alive(self) -> None:
        try:
            await self._commands.short("exit 0", "asking whether it lives")
        except SandboxGone:
            raise
        except ProviderError as error:
            raise SandboxGone(str(error)) from error
