"""A filter of system calls that no command in a sandbox needs: it shrinks what a hostile one can try on the kernel.

Denied with EPERM: looking into other processes, mounts, new namespaces, kernel modules, keys, bpf, io_uring and the
like. Sockets: with a network namespace of its own a sandbox keeps Unix, IP and netlink sockets; without one, none.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os

from .linux import prctl_pointer

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2
_NEW_NAMESPACE_FLAGS = 0x7E020000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_CLONE3 = 435
_X32_BIT = 0x40000000

# These have one number everywhere: io_uring (3), the new mount calls (6), mount_setattr, pidfd_getfd.
_SAME_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 438)


class _Arch:
    def __init__(self, audit: int, clone: int, socket: int, denied: tuple[int, ...]) -> None:
        self.audit = audit
        self.clone = clone
        self.socket = socket
        self.denied = denied


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


_ARCHES = {
    # ptrace, process_vm_readv/writev, mount, umount2, pivot_root, chroot, setns, unshare, keyctl, add_key,
    # request_key, bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init/finit/delete_module, reboot,
    # swapon, swapoff, acct, quotactl, name_to_handle_at, open_by_handle_at, kcmp, vhangup, syslog
    "x86_64": _Arch(
        0xC000003E,
        56,
        41,
        _numbers(
            "101 310 311 165 166 155 161 308 272 250 248 249 321 298 323 246 320 175 313 176 169 167 168 163 179 "
            "303 304 312 153 103"
        ),
    ),
    "aarch64": _Arch(
        0xC00000B7,
        220,
        198,
        _numbers(
            "117 270 271 40 39 41 51 268 97 219 217 218 280 241 282 104 294 105 273 106 142 224 225 89 60 264 265 "
            "272 58 116"
        ),
    ),
}


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction))]


class Filter:
    """A built filter; ``apply`` puts it on the calling thread for good (needs no-new-privs)."""

    def __init__(self, instructions: list[tuple[int, int, int, int]]) -> None:
        self._code = (_Instruction * len(instructions))(*[_Instruction(*i) for i in instructions])
        self._program = _Program(len(instructions), self._code)

    def apply(self) -> None:
        prctl_pointer(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(self._program), "seccomp")


@functools.cache
def build(*, own_network: bool) -> Filter | None:
    """The filter for this machine; None where its kind of processor is not known."""
    arch = _ARCHES.get(os.uname().machine)
    if arch is None:
        return None
    code: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, arch.audit),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),  # 32-bit programs: their numbers mean other calls
        (_LOAD, 0, 0, _NR_AT),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number in (*arch.denied, *_SAME_EVERYWHERE):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    # clone3 hides its flags from a filter; told that it does not exist, the C library uses clone.
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    code += [
        (_EQUAL, 0, 4, arch.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_HAS_BITS, 0, 1, _NEW_NAMESPACE_FLAGS),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    families = (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK) if own_network else ()
    code += [(_EQUAL, 0, 2 + 2 * len(families), arch.socket), (_LOAD, 0, 0, _FIRST_ARGUMENT_AT)]
    for family in families:
        code += [(_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW)]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EACCES), (_RETURN, 0, 0, _ALLOW)]
    return Filter(code)
