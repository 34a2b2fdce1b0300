"""Files of a Blaxel sandbox: trees in batches that the service takes, binary files by themselves, modes afterwards."""

from __future__ import annotations

import json
import posixpath
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from engine.sandboxes.blaxel.commands import Commands
from engine.sandboxes.blaxel.connection import Connection
from engine.sandboxes.blaxel.failures import classify, not_found_inside, status_of
from engine.sandboxes.errors import (
    FileTrouble,
    InvalidRequest,
    PermanentError,
    SandboxFileError,
    SandboxGone,
    TransientError,
)
from engine.sandboxes.trees import PlainFile

BATCH_BYTES = 1024 * 1024
"""JSON of one request that writes a tree. The service refuses 5 MB; this much is encoded in a few milliseconds."""
MAX_FILE_BYTES = 256 * 1024 * 1024
_BATCH_FILES = 2000
_WRITE_SECONDS = 120.0
_DEFAULT_MODE = 0o644
_PLAIN_PATH = re.compile(r"[A-Za-z0-9._~/+@=,:-]*\Z")
_SCRIPT_BYTES = 64 * 1024
_MAX_READ = 256 * 1024 * 1024

_TROUBLES: tuple[tuple[str, FileTrouble], ...] = (
    ("no space left", "no_space"),
    ("disk quota", "no_space"),
    ("no such file", "missing"),
    ("not found", "missing"),
    ("does not exist", "missing"),
    ("is a directory", "directory"),
    ("not a directory", "not_a_file"),
    ("permission denied", "denied"),
    ("read-only", "denied"),
    ("unsupported file type", "not_a_file"),
)


@dataclass(slots=True)
class Files:
    """Reads and writes over one connection."""

    link: Connection
    commands: Commands
    _moded: set[str] = field(default_factory=set)  # absolute paths that have got a mode of their own

    async def write(self, files: Sequence[PlainFile], root: str) -> None:
        """Write a tree. Raises ProviderError, SandboxFileError."""
        texts: list[tuple[str, str, int]] = []
        others: list[PlainFile] = []
        for file in files:
            if len(file.content) > MAX_FILE_BYTES:
                raise InvalidRequest(f"{file.path} holds more than {MAX_FILE_BYTES} bytes")
            text = _text(file.content)
            size = BATCH_BYTES + 1 if text is None else len(json.dumps(file.path)) + _json_size(text)
            if text is None or size > BATCH_BYTES:
                others.append(file)
            else:
                texts.append((file.path, text, size))
        for batch in _batches(texts):
            await self._write_clearing(batch, root)
        for file in others:
            await self._write_binary(file, root)
        await self._set_modes(files, root)

    async def _write_clearing(self, batch: dict[str, str], root: str) -> None:
        """Write a batch; where something lies in the way of a file, remove that and write again."""
        try:
            await self._write_batch(batch, root)
        except (SandboxGone, TransientError):
            raise
        except (SandboxFileError, PermanentError) as error:
            if isinstance(error, SandboxFileError) and error.reason == "no_space":
                raise
            await self._clear(list(batch), root)
            await self._write_batch(batch, root)

    async def _write_batch(self, batch: dict[str, str], root: str) -> None:
        entries: list[Any] = [{"path": path, "content": text} for path, text in batch.items()]

        async def write() -> None:
            try:
                await self.link.box.fs.write_tree(entries, quote(root))
            except Exception as error:
                raise _file_error(error, root) from error

        await self.link.ask("writing files", write, seconds=_WRITE_SECONDS)

    async def _write_binary(self, file: PlainFile, root: str) -> None:
        path = posixpath.join(root, file.path)
        # The path is part of the address and of the form; characters that must be quoted in one spoil the other.
        plain = _PLAIN_PATH.match(path) is not None
        place = path if plain else f"/tmp/.ltui-{secrets.token_hex(8)}"

        async def write() -> None:
            try:
                await self.link.box.fs.write_binary(place, file.content)
            except Exception as error:
                raise _file_error(error, path) from error

        async def put() -> None:
            await self.link.ask("writing a file", write, seconds=_WRITE_SECONDS)

        try:
            await put()
        except (SandboxFileError, PermanentError) as error:
            if isinstance(error, SandboxFileError) and error.reason == "no_space":
                raise
            await self._clear([file.path], root)
            await put()
        if not plain:
            target = shlex.quote(path)
            script = (
                f"mkdir -p {shlex.quote(posixpath.dirname(path))} && "
                f"{{ [ -d {target} ] && [ ! -L {target} ] && rm -rf {target}; mv -f {place} {target}; }}"
            )
            await self._shell(script, path)

    async def _set_modes(self, files: Sequence[PlainFile], root: str) -> None:
        wanted: dict[int, list[str]] = {}
        for file in files:
            path = posixpath.join(root, file.path)
            if file.mode != _DEFAULT_MODE or path in self._moded:
                wanted.setdefault(file.mode, []).append(path)
        for mode, paths in wanted.items():
            for some in _chunks(paths):
                await self._shell(f"chmod {mode:o} -- {' '.join(map(shlex.quote, some))}", some[0])
            self._moded.update(paths)

    async def _clear(self, paths: Sequence[str], root: str) -> None:
        """Remove directories where files belong, and files where directories belong."""
        parents: dict[str, None] = {}
        for path in paths:
            above = posixpath.dirname(path)
            steps: list[str] = []
            while above:
                steps.append(above)
                above = posixpath.dirname(above)
            parents.update(dict.fromkeys(reversed(steps)))
        for some in _chunks([posixpath.join(root, parent) for parent in parents]):
            listed = " ".join(map(shlex.quote, some))
            await self._shell(
                f'for one in {listed}; do if [ -e "$one" ] && [ ! -d "$one" ]; then rm -f -- "$one"; fi; done',
                root,
            )
        for some in _chunks([posixpath.join(root, path) for path in paths]):
            listed = " ".join(map(shlex.quote, some))
            await self._shell(
                f'for one in {listed}; do if [ -d "$one" ] && [ ! -L "$one" ]; then rm -rf -- "$one"; fi; done',
                root,
            )

    async def _shell(self, script: str, path: str) -> None:
        done = await self.commands.short(script, "preparing files")
        if int(done.exit_code) != 0:
            text = " ".join(f"{done.stderr or ''} {done.stdout or ''}".split())[:300]
            raise SandboxFileError(f"{path}: {text or 'refused'}", path=path, reason=_reason(text))

    # -- read ---------------------------------------------------------------------------------------------------

    async def read(self, path: str, max_bytes: int) -> bytes:
        """A file's content. Raises ProviderError, SandboxFileError."""
        if not 0 < max_bytes <= _MAX_READ:
            raise InvalidRequest(f"max_bytes = {max_bytes}: from 1 to {_MAX_READ} are possible")
        return await self.link.ask(
            "reading a file", lambda: self._read(path, max_bytes), seconds=_WRITE_SECONDS
        )

    async def _read(self, path: str, max_bytes: int) -> bytes:
        """Piece by piece: the SDK's own method takes a file of any size into memory."""
        fs = self.link.box.fs
        headers = {"Accept": "application/octet-stream"}
        async with self.link.client.stream("GET", f"/filesystem/{quote(path)}", headers=headers) as response:
            if not response.is_success:
                await response.aread()
                try:
                    fs.handle_response_error(response)
                except Exception as error:
                    raise _file_error(error, path) from error
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > max_bytes:
                    raise SandboxFileError(
                        f"{path} holds more than {max_bytes} bytes", path=path, reason="too_large"
                    )
            body = b"".join(pieces)
            if response.headers.get("content-type", "").startswith("application/json"):
                return _from_json(path, body)
            return body


def _from_json(path: str, body: bytes) -> bytes:
    """What came instead of plain bytes: a directory's listing, or a text file as JSON."""
    try:
        table = json.loads(body)
    except ValueError:
        return body
    if isinstance(table, dict) and "subdirectories" in table:
        raise SandboxFileError(f"{path} is a directory", path=path, reason="directory")
    if isinstance(table, dict) and {"content", "path"} <= table.keys() and isinstance(table["content"], str):
        return table["content"].encode("utf-8", "replace")
    return body


def _file_error(error: Exception, path: str) -> Exception:
    """A file's trouble where the answer is about the file; the provider's failure otherwise."""
    failure = classify(error, "a file")
    status = status_of(error)
    text = str(failure).lower()
    if not_found_inside(error):
        return SandboxFileError(f"{path} does not exist", path=path, reason="missing")
    if status in (400, 403, 409, 422, 500, 507):
        for words, reason in _TROUBLES:
            if words in text:
                return SandboxFileError(_sentence(path, reason), path=path, reason=reason)
    return error


def _sentence(path: str, reason: FileTrouble) -> str:
    words = {
        "no_space": "there is no space left on the sandbox's disk",
        "missing": "does not exist",
        "directory": "is a directory",
        "denied": "is not permitted",
        "not_a_file": "is no regular file",
    }
    return f"{path}: {words.get(reason, 'cannot be used')}"


def _reason(text: str) -> FileTrouble:
    lowered = text.lower()
    for words, reason in _TROUBLES:
        if words in lowered:
            return reason
    return "other"


def _text(content: bytes) -> str | None:
    """The content as text where the service's JSON can carry it unchanged."""
    if len(content) > BATCH_BYTES:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _json_size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8"))


def _batches(texts: Sequence[tuple[str, str, int]]) -> list[dict[str, str]]:
    batches: list[dict[str, str]] = []
    size = BATCH_BYTES
    for path, text, needed in texts:
        if not batches or size + needed > BATCH_BYTES or len(batches[-1]) >= _BATCH_FILES:
            batches.append({})
            size = 0
        batches[-1][path] = text
        size += needed
    return batches


def _chunks(words: Sequence[str]) -> list[list[str]]:
    """Pieces that fit into one shell command line."""
    chunks: list[list[str]] = []
    size = _SCRIPT_BYTES
    for word in words:
        needed = 4 * len(word.encode("utf-8", "surrogateescape")) + 3
        if not chunks or size + needed > _SCRIPT_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(word)
        size += needed
    return chunks
