"""What ``write_tree`` and ``read`` take: paths that stay below their root, and contents as bytes."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from engine.sandboxes.contract import WORKDIR, Tree
from engine.sandboxes.errors import InvalidRequest

_MAX_PATH_BYTES = 4000
_MAX_PART_BYTES = 255
_DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A file to write: ``path`` relative to the root, normalised; ``mode`` of permission bits only."""

    path: str
    content: bytes
    mode: int


def plain_files(files: Tree) -> list[PlainFile]:
    """Both spellings of a tree as one list. Raises InvalidRequest for a path or a content that cannot be."""
    if isinstance(files, Mapping):
        return [
            PlainFile(relative_path(path), _content(path, text), _DEFAULT_MODE)
            for path, text in files.items()
        ]
    found: list[PlainFile] = []
    for entry in files:
        path = entry["path"]
        mode = entry.get("mode", _DEFAULT_MODE)
        if not isinstance(mode, int) or not 0 <= mode <= 0o777:
            raise InvalidRequest(f"{path!r} has the mode {mode!r}; permission bits up to 0o777 are allowed")
        found.append(PlainFile(relative_path(path), _content(path, entry["content"]), mode))
    return found


def relative_path(path: str) -> str:
    """A path below its root, without ``.`` and doubled slashes. Raises InvalidRequest."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidRequest(f"{path!r} cannot be a file's path")
    if path.startswith("/"):
        raise InvalidRequest(f"{path!r} is absolute; paths of a tree are relative to its root")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not parts or path.endswith("/") or ".." in parts:
        raise InvalidRequest(f"{path!r} does not name a file below the root of its tree")
    _check_length(path, parts)
    return "/".join(parts)


def absolute_path(path: str) -> str:
    """A path in the sandbox; relative ones start in ``/work``. Raises InvalidRequest for NUL, ``..`` and length."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidRequest(f"{path!r} cannot be a path")
    parts = path.split("/")
    if ".." in parts:
        raise InvalidRequest(f"{path!r} climbs with '..'; name the place itself")
    _check_length(path, parts)
    return posixpath.normpath(posixpath.join(WORKDIR, path))


def _check_length(path: str, parts: list[str]) -> None:
    try:
        sizes = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{path!r} cannot be a path: {error.reason}") from error
    if sum(sizes) + len(sizes) > _MAX_PATH_BYTES or max(sizes) > _MAX_PART_BYTES:
        raise InvalidRequest(f"{path[:80]!r}… is too long for a path")


def _content(path: str, content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return plain_text(content).encode("utf-8", "surrogateescape")
    raise InvalidRequest(f"the content of {path!r} is a {type(content).__name__}; text or bytes are needed")


def plain_text(text: str) -> str:
    """Text that can be bytes: a lone surrogate, which a model's broken JSON may hold, becomes a question mark."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
