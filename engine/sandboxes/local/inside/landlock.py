"""File, TCP, signal and abstract-socket rules of the Landlock security module on the calling process.

Used where no namespaces can be made. A rule set holds for the process and all its descendants, for good.
"""

from __future__ import annotations

import ctypes
import os
import stat

from .linux import no_new_privileges, syscall

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _READ_FILE | _READ_DIR
# How many of the rights a version of the interface knows: 13 in the first, then refer, truncate, ioctl.
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def abi_version() -> int:
    """The kernel's version of the interface; 0 where it has none or it is switched off."""
    try:
        return syscall(_CREATE, None, 0, _VERSION_FLAG, what="landlock version")
    except OSError:
        return 0


def confine(workspace: str, readable: tuple[str, ...]) -> None:
    """Allow reading and running the system, ``readable``, and everything but devices in ``workspace``; nothing else.

    Raises OSError where the kernel cannot do it.
    """
    abi = abi_version()
    if abi == 0:
        raise OSError("this kernel has no Landlock")
    known = (1 << _FS_RIGHTS[min(abi, 5)]) - 1
    attributes = _Ruleset(known, 0b11 if abi >= 4 else 0, 0b11 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = syscall(_CREATE, ctypes.byref(attributes), size, 0, what="landlock rule set")
    try:
        for path in SYSTEM_DIRECTORIES:
            _allow(ruleset, path, _READ | _EXECUTE, known)
        for path in ("/proc", *readable):
            _allow(ruleset, path, _READ, known)
        for path in DEVICES:
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV, known)
        _allow(ruleset, workspace, known & ~_MAKE_CHAR & ~_MAKE_BLOCK, known)
        no_new_privileges()
        syscall(_RESTRICT, ruleset, 0, what="landlock")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, known: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # this machine does not have it: nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _FILE_RIGHTS
        rule = _PathRule(rights & known, place)
        syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0, what=f"landlock rule for {path}")
    finally:
        os.close(place)
