"""Files as the keeper writes and reads them, from within the sandbox's own view of the file system."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FileTrouble(Exception):
    """``reason``: one of the words of the contract's SandboxFileError."""

    def __init__(self, path: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.reason = reason


def explain(path: str, error: OSError) -> FileTrouble:
    """An OSError as a reason and a sentence."""
    reasons = {
        errno.ENOENT: ("missing", "does not exist"),
        errno.ENOTDIR: ("missing", "does not exist: a part of its path is no directory"),
        errno.ELOOP: ("missing", "is a link that leads nowhere"),
        errno.EISDIR: ("directory", "is a directory"),
        errno.EACCES: ("denied", "cannot be accessed: permission denied"),
        errno.EPERM: ("denied", "cannot be accessed: not permitted"),
        errno.EROFS: ("denied", "cannot be written: read-only"),
        errno.ENOSPC: ("no_space", "does not fit: the sandbox's disk is full"),
        errno.EDQUOT: ("no_space", "does not fit: the sandbox's disk is full"),
        errno.EFBIG: ("no_space", "is larger than a file in the sandbox may be"),
    }
    reason, said = reasons.get(error.errno or 0, ("other", error.strerror or str(error)))
    return FileTrouble(path, reason, f"{path} {said}")


def write_files(root: str, entries: Sequence[tuple[str, int, bytes]]) -> None:
    """Write (path below root, mode, content) each; raises FileTrouble.

    Never follows a link below the root: what a hostile process laid in the way (a link, a directory where a file
    goes, a directory without rights) is replaced or repaired.
    """
    for path, mode, content in entries:
        try:
            _write(root, path.split("/"), mode, content)
        except OSError as error:
            raise explain(path, error) from error


def _write(root: str, parts: list[str], mode: int, content: bytes) -> None:
    os.makedirs(root, 0o755, exist_ok=True)
    # The root may be reached through links (/var/tmp); below it none is followed.
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = _enter(here, part)
            os.close(here)
            here = below
        _replace(here, parts[-1], mode, content)
    finally:
        os.close(here)


def _enter(directory: int, name: str) -> int:
    """Open a directory in a directory; made if it is missing, replaced if it is something else."""
    for _ in range(3):
        try:
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError), _writable(directory):
                os.mkdir(name, 0o755, dir_fd=directory)
        except PermissionError:
            os.chmod(name, 0o755, dir_fd=directory)
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            with _writable(directory):
                os.unlink(name, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _replace(directory: int, name: str, mode: int, content: bytes) -> None:
    """A new file under this name, whatever had it before; it appears there complete."""
    fresh = f".ltui-{os.getpid()}-{os.urandom(4).hex()}"
    with _writable(directory):
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(file, left) :]
                os.fchmod(file, mode)
            finally:
                os.close(file)
            try:
                os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
            except IsADirectoryError:
                _remove_directory(directory, name)
                os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=directory)
            raise


def _remove_directory(parent: int, name: str) -> None:
    os.chmod(name, 0o700, dir_fd=parent)
    here = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        for entry in os.scandir(here):
            if entry.is_dir(follow_symlinks=False):
                _remove_directory(here, entry.name)
            else:
                os.unlink(entry.name, dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(name, dir_fd=parent)


@contextlib.contextmanager
def _writable(directory: int):
    """Give the owner's rights back to a directory that lost them."""
    now = stat.S_IMODE(os.fstat(directory).st_mode)
    if now & 0o700 != 0o700:
        os.fchmod(directory, now | 0o700)
    yield


def read_file(path: str, max_bytes: int) -> bytes:
    """The whole content; raises FileTrouble where it is no plain file or larger than ``max_bytes``."""
    try:
        # Not blocking: a pipe that nobody writes to must not hold the keeper up.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise explain(path, error) from error
    try:
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            raise FileTrouble(path, "directory", f"{path} is a directory")
        if not stat.S_ISREG(found.st_mode):
            raise FileTrouble(path, "not_a_file", f"{path} is no plain file")
        data = bytearray()
        while len(data) <= max_bytes:
            piece = os.read(file, min(1 << 20, max_bytes + 1 - len(data)))
            if not piece:
                return bytes(data)
            data += piece
    except OSError as error:
        raise explain(path, error) from error
    finally:
        os.close(file)
    raise FileTrouble(path, "too_large", f"{path} holds more than {max_bytes} bytes ({found.st_size})")
