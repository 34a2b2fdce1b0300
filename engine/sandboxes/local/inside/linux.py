"""The few Linux calls that Python has no function for. All raise OSError."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
from collections.abc import Callable

CLONE_NEWNS = 0x00020000
_NAMESPACES = {
    "user": 0x10000000,
    "mnt": CLONE_NEWNS,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 32, 4096
_NS_GET_PARENT = 0xB702
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object, what: str) -> int:
    """A system call by number; integers are passed as longs."""
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *plain), what)


def prctl(option: int, first: int = 0, second: int = 0, what: str = "prctl") -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), 0, 0), what)


def prctl_pointer(option: int, first: int, pointer: object, what: str) -> None:
    """A prctl whose third argument is an address."""
    _checked(_libc.prctl(option, ctypes.c_ulong(first), pointer, 0, 0), what)


def die_with_parent(sig: int, parent: int) -> None:
    """Have the kernel send ``sig`` when the parent ends; exits at once if it has ended already.

    A change of credentials clears this, so it is called after every one.
    """
    prctl(_PR_SET_PDEATHSIG, sig, what="parent-death signal")
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Orphaned descendants become this process's children."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1, what="subreaper")


def set_dumpable(value: bool) -> None:
    """Whether processes of the same user may look into this one."""
    prctl(_PR_SET_DUMPABLE, int(value), what="dumpable")


def no_new_privileges() -> None:
    """From here on no program gains rights by being executed."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1, what="no-new-privs")


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def drop_capabilities() -> None:
    """Give up every capability for good."""
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability, what="bounding set")
        except OSError:
            break  # one above the kernel's last capability, or none are held
    # Kernels before 4.3 have no ambient set.
    with contextlib.suppress(OSError):
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, what="ambient set")
    header = _CapHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapData * 2)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")


def join_namespaces(pidfd: int, pid: int, prepare: Callable[[], None]) -> None:
    """Enter every namespace of another process that is not ours already; children enter its pid namespace.

    ``prepare`` is called while this process has rights over the mounts: they may belong to a user namespace around
    the one that the other process is in now.
    """
    flags = 0
    for name, flag in _NAMESPACES.items():
        try:
            theirs = os.stat(f"/proc/{pid}/ns/{name}").st_ino
        except FileNotFoundError:
            continue  # the kernel has no such namespaces
        if theirs != os.stat(f"/proc/self/ns/{name}").st_ino:
            flags |= flag
    mine = os.stat("/proc/self/ns/user").st_ino
    inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        outer = fcntl.ioctl(inner, _NS_GET_PARENT)
        try:
            os.setns(outer if os.fstat(outer).st_ino != mine else inner, _NAMESPACES["user"])
            nested = os.fstat(outer).st_ino != mine
        finally:
            os.close(outer)
    finally:
        os.close(inner)
    os.setns(pidfd, CLONE_NEWNS)
    prepare()
    rest = flags & ~CLONE_NEWNS if nested else flags & ~CLONE_NEWNS & ~_NAMESPACES["user"]
    os.setns(pidfd, rest)


def mount_tmpfs(path: str, mode: int, size: int, inodes: int) -> None:
    """A fresh tmpfs with a bound on its bytes and on the number of its files."""
    options = f"mode={mode:o},size={size},nr_inodes={inodes}".encode()
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    _checked(_libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags, options), f"tmpfs on {path}")


def make_read_only(path: str) -> None:
    """A mount, without those below it, becomes read-only."""
    flags = ctypes.c_ulong(_MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_REMOUNT | _MS_BIND)
    _checked(_libc.mount(None, path.encode(), None, flags, None), f"read-only {path}")


def become_user(uid: int, gid: int) -> None:
    """Drop root for good."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
