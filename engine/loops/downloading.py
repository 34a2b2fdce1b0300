"""Fetching a checkpoint's files into a directory: resumable, verified by size, never over somebody else's files.

The directory gets ``checkpoint.json``, which says whose files these are. It is written first, so that a second call
knows the first one's files and goes on where it stopped. Unfinished files end in ``.part``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import httpx

from engine.loops.errors import LoopsError, explain
from engine.loops.management import LoopsCheckpoint, LoopsManagement, RemoteFile, Source

MANIFEST = "checkpoint.json"
PART = ".part"
TRIES = 5
PAUSE_SECONDS = 0.4  # before the second try; twice that before the third …
READ_SECONDS = 60.0
_SPARE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far a download is; ``file`` is the one being fetched. Sizes in bytes."""

    file: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Downloaded:
    """What is in the directory now. ``fetched_bytes`` came over the network; the rest lay there already."""

    directory: Path
    files: tuple[str, ...]
    bytes: int
    fetched_bytes: int


@dataclass(slots=True)
class _Work:
    """One download while it runs."""

    directory: Path
    files: Sequence[RemoteFile]
    progress: Callable[[DownloadProgress], None]
    done: int = 0
    bytes_done: int = 0
    fetched: int = 0
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(file.size_bytes for file in self.files)

    def tell(self, file: RemoteFile, of_file: int) -> None:
        told = DownloadProgress(file.name, self.done, len(self.files), self.bytes_done + of_file, self.total)
        self.progress(told)


async def download(
    loops: LoopsManagement,
    checkpoint: LoopsCheckpoint,
    directory: Path,
    *,
    about: dict[str, Any] | None = None,
    progress: Callable[[DownloadProgress], None] = lambda _: None,
) -> Downloaded:
    """Bring a checkpoint's files into ``directory``; a second call goes on where an earlier one stopped.

    ``about`` is added to ``checkpoint.json``.

    Raises:
        LoopsError: with one sentence: files of something else lie there, the disk is full, a file has another size
            than Loops says, or Loops failed. What has arrived stays and is used by the next call.
    """
    source = await loops.source(checkpoint.id)
    try:
        if source.kind == "volume":
            return await _pull(loops, source, checkpoint, directory, about or {})
        return await _fetch_all(loops, checkpoint, directory, about or {}, progress)
    except OSError as error:
        raise LoopsError(f"{directory} cannot be written: {error.strerror or error}") from error


async def _fetch_all(
    loops: LoopsManagement,
    checkpoint: LoopsCheckpoint,
    directory: Path,
    about: dict[str, Any],
    progress: Callable[[DownloadProgress], None],
) -> Downloaded:
    files = await loops.files(checkpoint.id)
    if not files:
        raise LoopsError(f"the checkpoint {checkpoint.address} has no files")
    for file in files:
        _require_harmless(file.name, checkpoint)
    _prepare(directory, checkpoint, files, about)
    work = _Work(directory, files, progress)
    urls = {file.name: file.url for file in files}

    async def renew() -> None:
        """Addresses live for a while only; a long download outlives them."""
        urls.update({file.name: file.url for file in await loops.files(checkpoint.id)})

    # A file's address carries its own permission: our key must not go there.
    timeout = httpx.Timeout(READ_SECONDS, connect=10.0)
    async with httpx.AsyncClient(timeout=timeout, follow_redirects=True) as client:
        for file in files:
            await _fetch(client, file, urls, renew, work)
            work.done += 1
            work.bytes_done += file.size_bytes
            work.tell(file, 0)
    _write_manifest(directory, checkpoint, files, about, complete=True)
    return Downloaded(directory, tuple(file.name for file in files), work.total, work.fetched)


async def _fetch(
    client: httpx.AsyncClient, file: RemoteFile, urls: dict[str, str], renew: Callable[[], Any], work: _Work
) -> None:
    """One file, over several connections where need be; what has arrived is kept between them."""
    target = work.directory / file.name
    if target.exists():  # of an earlier call: _prepare has looked at its size
        return
    part = target.with_name(target.name + PART)
    target.parent.mkdir(parents=True, exist_ok=True)
    problem = ""
    for number in range(TRIES):
        if number:
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (number - 1))
        try:
            await _continue(client, file, urls[file.name], part, work)
        except httpx.HTTPStatusError as error:
            problem = explain(error, f"fetching {file.name}", None)
            if error.response.status_code in (401, 403, 404, 410):
                await renew()
            elif error.response.status_code == 416:
                part.unlink(missing_ok=True)
            continue
        except httpx.HTTPError as error:
            problem = (
                f"the connection broke while fetching {file.name}: {type(error).__name__} {error}".strip()
            )
            continue
        size = _size(part)
        if size == file.size_bytes:
            part.replace(target)
            return
        problem = f"{file.name} has {size} bytes and must have {file.size_bytes}"
        if size > file.size_bytes:
            part.unlink()
    raise LoopsError(f"{problem}; what has arrived is kept, the same command goes on from there")


async def _continue(client: httpx.AsyncClient, file: RemoteFile, url: str, part: Path, work: _Work) -> None:
    """Fetch what a part lacks; all of it where the server does not serve ranges."""
    have = _begun(part)
    if have == file.size_bytes:  # an empty file is complete before anything was asked for
        return
    headers = {"Accept-Encoding": "identity"}  # the sizes are those of the files as they lie there
    if have:
        headers["Range"] = f"bytes={have}-"
    async with client.stream("GET", url, headers=headers) as answer:
        answer.raise_for_status()
        goes_on = answer.status_code == 206 and answer.headers.get("content-range", "").startswith(
            f"bytes {have}-"
        )
        with part.open("ab" if goes_on else "wb") as into:
            await _copy(answer, into, file, have if goes_on else 0, work)
            into.flush()
            await asyncio.to_thread(os.fsync, into.fileno())


def _begun(part: Path) -> int:
    """How much of a file has arrived, in bytes; it exists from now on."""
    part.touch()
    return part.stat().st_size


def _size(path: Path) -> int:
    """A file's size in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


async def _copy(answer: httpx.Response, into: IO[bytes], file: RemoteFile, at: int, work: _Work) -> None:
    async for chunk in answer.aiter_raw():
        into.write(chunk)
        at += len(chunk)
        work.fetched += len(chunk)
        work.tell(file, at)
        if at > file.size_bytes:
            return  # longer than it may be: no reason to fill the disk


def _require_harmless(name: str, checkpoint: LoopsCheckpoint) -> None:
    """A server's file name must stay below the directory."""
    path = PurePosixPath(name)
    odd = path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or "\0" in name
    if odd or name == MANIFEST or name.endswith(PART):
        raise LoopsError(f"the checkpoint {checkpoint.address} names a file that cannot be written: {name!r}")


def _prepare(
    directory: Path, checkpoint: LoopsCheckpoint, files: Sequence[RemoteFile], about: dict[str, Any]
) -> None:
    """Make the directory ours, or refuse it."""
    if directory.exists() and not directory.is_dir():
        raise LoopsError(f"{directory} is no directory")
    directory.mkdir(parents=True, exist_ok=True)
    known = _read_manifest(directory)
    if known is not None and known.get("id") != checkpoint.id:
        raise LoopsError(
            f"{directory} holds another checkpoint ({known.get('address')}); name another directory"
        )
    missing = 0
    for file in files:
        target = directory / file.name
        part = target.with_name(target.name + PART)
        if not target.exists():
            missing += file.size_bytes - (_size(part) if known is not None else 0)
        elif known is None:
            raise LoopsError(
                f"{target} is there already and no earlier download of this checkpoint put it there; name an empty "
                "directory"
            )
        elif target.stat().st_size != file.size_bytes:
            raise LoopsError(
                f"{target} has {target.stat().st_size} bytes and must have {file.size_bytes}: it was changed since it "
                "was downloaded; move it away, or name another directory"
            )
        if known is None:
            part.unlink(missing_ok=True)
    free = shutil.disk_usage(directory).free
    if missing > 0 and free < missing + _SPARE_BYTES:
        raise LoopsError(
            f"{directory} has room for {free // 2**20} MiB, and {missing // 2**20} MiB are to come"
        )
    _write_manifest(directory, checkpoint, files, about, complete=False)


def _read_manifest(directory: Path) -> dict[str, Any] | None:
    path = directory / MANIFEST
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LoopsError(f"{path} cannot be read: {error}; name another directory") from error
    if not isinstance(known, dict) or "id" not in known:
        raise LoopsError(f"{path} is not of a download; name another directory")
    return known


def _write_manifest(
    directory: Path,
    checkpoint: LoopsCheckpoint,
    files: Sequence[RemoteFile],
    about: dict[str, Any],
    *,
    complete: bool,
) -> None:
    value = {
        **about,
        "address": checkpoint.address,
        "id": checkpoint.id,
        "target": checkpoint.target,
        "base_model": checkpoint.base_model,
        "files": {file.name: file.size_bytes for file in files},
        "complete": complete,
    }
    temporary = directory / f".{MANIFEST}.{os.getpid()}"
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    temporary.replace(directory / MANIFEST)


async def _pull(
    loops: LoopsManagement,
    source: Source,
    checkpoint: LoopsCheckpoint,
    directory: Path,
    about: dict[str, Any],
) -> Downloaded:
    """A checkpoint that lies in a volume comes through Baseten's volume client, whole, without progress."""
    from baseten.bdn.volumes import VolumeClient, VolumeRef

    if source.ref is None or source.path is None:
        raise LoopsError(f"the checkpoint {checkpoint.address} lies in a volume that cannot be named")
    _prepare(directory, checkpoint, [], about)
    ref = VolumeRef.parse(source.ref).with_path(source.path)

    def pull() -> Any:
        with VolumeClient(api_key=loops.api_key, base_url_override=loops.url) as client:
            return client.pull(ref, directory, overwrite=True)

    try:
        result = await asyncio.to_thread(pull)
    except Exception as error:
        raise LoopsError(explain(error, f"pulling {checkpoint.address}", loops.url)) from error
    found = [path for path in sorted((directory / source.path).rglob("*")) if path.is_file()]
    files = [RemoteFile(str(path.relative_to(directory)), "", path.stat().st_size) for path in found]
    _write_manifest(directory, checkpoint, files, about, complete=True)
    return Downloaded(
        directory,
        tuple(file.name for file in files),
        sum(file.size_bytes for file in files),
        int(result.bytes_written),
    )
