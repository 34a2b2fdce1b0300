"""Files of one sandbox by the means of its local sandbox: listings, reads, writes, removals."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from engine.sandboxes import InvalidRequest, ProviderError, Sandbox, SandboxFileError
from engine.sandboxes.contract import FileEntry
from tests.blaxel_emulator.answers import Refusal, edge_error, sandbox_error
from tests.blaxel_emulator.world import Box

HOME = "/tmp"  # where relative paths start: not /work, which a real image does not have
_LIST_BYTES = 16 * 1024 * 1024
_READ_BYTES = 64 * 1024 * 1024
_COMMAND_SECONDS = 60.0
_FORMAT = r"%y\t%s\t%m\t%u\t%g\t%TY-%Tm-%TdT%TH:%TM:%.2TSZ\t%p\0"


def place(path: str) -> str:
    """What follows the route: absolute with a slash of its own, else below the sandbox's directory."""
    return posixpath.normpath(posixpath.join(HOME, path))


class Files:
    """All raise Refusal."""

    def __init__(self, box: Box, sandbox: Sandbox) -> None:
        self._box, self._sandbox = box, sandbox

    async def write(self, path: str, content: bytes, mode: int) -> None:
        self._touch(path)
        root, name = posixpath.split(path)
        entry: FileEntry = {"path": name, "content": content, "mode": mode}
        try:
            await self._sandbox.write_tree([entry], root or "/")
        except InvalidRequest as error:
            raise Refusal(sandbox_error(422, str(error))) from error
        except SandboxFileError as error:
            status = 507 if error.reason == "no_space" else 422
            raise Refusal(sandbox_error(status, str(error))) from error
        except ProviderError as error:
            raise self._lost(error) from error

    async def write_tree(self, root: str, files: Mapping[str, Any]) -> dict[str, Any]:
        """One after the other, so that a failure leaves the former ones; no check of ``..``, as in the real one."""
        self._touch(root)
        for path, text in files.items():
            if not isinstance(text, str):
                raise Refusal(sandbox_error(400, f"{path}: content must be a string"))
            await self.write(posixpath.normpath(posixpath.join(root, path)), text.encode("utf-8"), 0o644)
        if not files:
            await self.make_directory(root, "0755")
        return await self.listing(root)

    async def make_directory(self, path: str, permissions: str) -> None:
        self._touch(path)
        mode = permissions if permissions.isdigit() else "0755"
        await self._run(["mkdir", "-p", "-m", mode, path])

    async def read(self, path: str) -> bytes | None:
        """None for a directory."""
        if self._hidden(path):
            raise self._missing(path)
        try:
            return await self._sandbox.read(path, _READ_BYTES)
        except SandboxFileError as error:
            if error.reason == "directory":
                return None
            if error.reason == "missing":
                raise self._missing(path) from error
            raise Refusal(sandbox_error(422, str(error))) from error
        except InvalidRequest as error:
            raise Refusal(sandbox_error(422, str(error))) from error
        except ProviderError as error:
            raise self._lost(error) from error

    async def entries(self, path: str, *, deep: bool) -> list[dict[str, Any]]:
        if self._hidden(path):
            raise self._missing(path)
        depth = [] if deep else ["-maxdepth", "1"]
        found_by = ["-name", ".sandbox-api-*", "-o", "-printf", _FORMAT]
        text = await self._run(["find", "-H", path, "-mindepth", "1", *depth, *found_by])
        found: list[dict[str, Any]] = []
        for line in filter(None, text.split("\0")):
            kind, size, mode, owner, group, modified, where = line.split("\t", 6)
            entry: dict[str, Any] = {"name": posixpath.basename(where), "path": where, "kind": kind}
            if kind != "d":
                entry |= {
                    "size": int(size),
                    "permissions": f"0{mode}",
                    "owner": owner,
                    "group": group,
                    "lastModified": modified,
                }
            found.append(entry)
        return sorted(found, key=lambda entry: entry["path"])

    async def listing(self, path: str, *, deep: bool = False) -> dict[str, Any]:
        files: list[dict[str, Any]] = []
        directories: list[dict[str, Any]] = []
        for entry in await self.entries(path, deep=deep):
            (directories if entry.pop("kind") == "d" else files).append(entry)
        told: dict[str, Any] = {"name": posixpath.basename(path) or "/", "path": path}
        told |= {"files": files, "subdirectories": directories}
        if deep:
            told["recursive"] = True
        return told

    async def remove(self, path: str, *, recursive: bool) -> None:
        if self._hidden(path):
            raise self._missing(path)
        test = await self._sandbox.exec(
            f"test -e {shlex.quote(path)} -o -L {shlex.quote(path)}", timeout=_COMMAND_SECONDS
        )
        if test.exit_code != 0:
            raise self._missing(path)
        script = 'if [ -d "$1" ] && [ ! -L "$1" ]; then rmdir "$1"; else rm "$1"; fi'
        await self._run(["rm", "-rf", path] if recursive else ["sh", "-c", script, "sh", path])

    async def _run(self, words: list[str]) -> str:
        try:
            done = await self._sandbox.exec(words, timeout=_COMMAND_SECONDS, max_output=_LIST_BYTES)
        except InvalidRequest as error:
            raise Refusal(sandbox_error(422, str(error))) from error
        except ProviderError as error:
            raise self._lost(error) from error
        if done.exit_code == 0:
            return done.stdout
        if "No such file" in done.stderr:
            raise Refusal(sandbox_error(404, done.stderr.strip()))
        raise Refusal(sandbox_error(422, done.stderr.strip()))

    def _touch(self, path: str) -> None:
        if path == "/work" or path.startswith("/work/"):
            self._box.workdir_made = True

    def _hidden(self, path: str) -> bool:
        return (path == "/work" or path.startswith("/work/")) and not self._box.workdir_made

    def _missing(self, path: str) -> Refusal:
        return Refusal(sandbox_error(404, f"stat {path}: no such file or directory"))

    def _lost(self, error: ProviderError) -> Refusal:
        return Refusal(edge_error(502, "UPSTREAM_ERROR", str(error), retryable=True))
