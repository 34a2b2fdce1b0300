"""Runs in the agent's own sandbox, by itself: which files there are, without following a single link.

This file's text is started there with ``python3 -I -S -c``; nothing of the engine is there, and what it prints is not
to be trusted. Its arguments: the directory, how many entries and how many bytes it may look at, and the names that it
skips, as JSON. It prints one JSON line: {"files": {path: [sha256, size]}, "odd": [path, what] or null}.
"""

import base64
import fnmatch
import hashlib
import json
import os
import stat
import sys

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


class Odd(Exception):
    """A path and what is wrong with it."""


def main():
    root, entries, size, skipped = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    files, odd = {}, None
    try:
        _walk(os.fsencode(root), b"", files, [entries, size], [os.fsencode(name) for name in skipped])
    except Odd as found:
        odd = list(found.args)
    print(json.dumps({"files": files, "odd": odd}))


def _walk(root, below, files, left, skipped):
    try:
        names = sorted(os.listdir(os.path.join(root, below)))
    except OSError as error:
        raise Odd(_shown(below), "a directory that cannot be read: " + str(error.strerror)) from error
    for name in names:
        path = os.path.join(below, name)
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in skipped):
            continue
        left[0] -= 1
        if left[0] < 0:
            raise Odd(_shown(path), "one file too many")
        _look(root, path, files, left, skipped)


def _look(root, path, files, left, skipped):
    whole = os.path.join(root, path)
    found = os.lstat(whole)
    if stat.S_ISDIR(found.st_mode):
        _walk(root, path, files, left, skipped)
        return
    for is_kind, what in _KINDS:
        if is_kind(found.st_mode):
            raise Odd(_shown(path), what)
    if found.st_nlink > 1:
        raise Odd(_shown(path), "a hard link")
    try:
        known = path.decode("utf-8")
    except UnicodeDecodeError:
        raise Odd(_shown(path), "a name that is no text") from None
    left[1] -= found.st_size
    if left[1] < 0:
        raise Odd(known, "too large, with all the others")
    try:
        with open(os.open(whole, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            files[known] = [hashlib.sha256(file.read(found.st_size + 1)).hexdigest(), found.st_size]
    except OSError as error:
        raise Odd(known, "a file that cannot be read: " + str(error.strerror)) from error


def _shown(path):
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(path).decode()


if __name__ == "__main__":
    main()
