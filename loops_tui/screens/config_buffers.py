"""A config file that is being edited: its text on the disk, reading it, noticing that it changed, saving it.

Texts are kept as they are, byte for byte but for what a person types: byte order mark, line endings, mode and the
link that leads to the file stay. Everything that touches the disk belongs into a thread.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

LARGEST = 1_000_000  # bytes; a config of a megabyte is something else
LONGEST = 10_000  # characters of one line: a longer one would hold up every key
_BOM = b"\xef\xbb\xbf"
_NEWLINES = ("\r\n", "\n", "\r")


class Unopened(Exception):
    """A file cannot be edited here; the message is for a person."""


class NotSaved(Exception):
    """A text could not be written; the message is for a person. The file is as it was."""


@dataclass(frozen=True, slots=True)
class OnDisk:
    """What a file held when it was last read. ``data`` None: there is no such file."""

    data: bytes | None
    stamp: tuple[int, int, int] | None  # mtime in ns, size, inode

    @property
    def text(self) -> str:
        """Its text without the byte order mark; "" where there is none."""
        return "" if self.data is None else self.data.decode("utf-8-sig", "replace")


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file does; None where there is none (or it cannot be looked at)."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_disk(path: Path) -> OnDisk:
    """The file as it is now. Raises OSError for anything but its absence."""
    stamp = stamp_of(path)
    try:
        if stamp is not None and stamp[1] > LARGEST:
            return OnDisk(b"", stamp)  # it is no text that could be edited any more
        return OnDisk(path.read_bytes(), stamp)
    except (FileNotFoundError, NotADirectoryError):
        return OnDisk(None, None)


def open_file(path: Path) -> tuple[str, OnDisk]:
    """A file's text for the editor. Raises Unopened with the reason, in one sentence."""
    try:
        if path.is_dir():
            raise Unopened(f"{path.name} is a directory")
        if path.is_symlink() and not path.exists():
            raise Unopened(f"{path.name} is a link to {os.readlink(path)}, which is not there")
        if path.exists() and not path.is_file():
            raise Unopened(f"{path.name} is no regular file")
        size = path.stat().st_size
        if size > LARGEST:
            raise Unopened(f"{path.name} has {size / 1e6:.1f} MB: too much for a config, and for this editor")
        disk = read_disk(path)
    except FileNotFoundError as error:
        raise Unopened(f"{path.name} is not there any more") from error
    except OSError as error:
        raise Unopened(f"{path.name} cannot be read: {error.strerror or error}") from error
    if disk.data is None:
        raise Unopened(f"{path.name} is not there any more")
    try:
        text = disk.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = disk.data.count(b"\n", 0, error.start) + 1
        raise Unopened(f"{path.name} is not UTF-8 text (line {line}); it cannot be edited here") from error
    longest = max(map(len, text.splitlines()), default=0)
    if longest > LONGEST:
        raise Unopened(f"{path.name} has a line of {longest:,} characters: too long for this editor")
    if text != newline_of(text).join(text.splitlines()) + ending_of(text):
        raise Unopened(
            f"{path.name} mixes line endings or has separators that this editor would change; edit it elsewhere"
        )
    return text, disk


def newline_of(text: str) -> str:
    """How the text's lines end."""
    return next((newline for newline in _NEWLINES if newline in text), "\n")


def ending_of(text: str) -> str:
    """The newline at the very end of the text, or nothing."""
    return newline_of(text) if text.endswith(_NEWLINES) else ""


def save_file(path: Path, text: str, before: OnDisk) -> OnDisk:
    """Write ``text`` so that a reader sees either the old file or the new one, and return what lies there now.

    A link's target is written, with the mode it has. Raises NotSaved.
    """
    try:
        target = path.resolve()
        if not target.parent.is_dir():
            raise NotSaved(f"{path.name} was not saved: the directory {target.parent} is gone")
        data = text.encode("utf-8")
        if before.data is not None and before.data.startswith(_BOM):
            data = _BOM + data
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        if target.exists() and not os.access(target, os.W_OK):
            raise NotSaved(f"{path.name} was not saved: the file is write-protected")
        write_atomically(target, data, mode)
    except OSError as error:
        raise NotSaved(f"{path.name} was not saved: {error.strerror or error}") from error
    except UnicodeEncodeError as error:
        raise NotSaved(f"{path.name} was not saved: it holds characters that UTF-8 cannot write") from error
    return OnDisk(data, stamp_of(path))


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_atomically(target: Path, data: bytes, mode: int) -> None:
    """Write a file beside ``target``, bring it to the disk, and put it in its place. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
