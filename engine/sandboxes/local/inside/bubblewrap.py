"""The command line of bubblewrap: a private root with the system read-only, and nothing else of the machine."""

from __future__ import annotations

import functools
import os

ETC = ("/etc/alternatives", "/etc/ld.so.cache")
"""What commands may read of the machine's /etc. Each entry costs a mount at every start, so it is what must be there."""

UID = GID = 1000
USER = "agent"

ETC_FILES = {
    "/etc/passwd": f"root:x:0:0::/:/bin/sh\n{USER}:x:{UID}:{GID}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": f"root:x:0:\n{USER}:x:{GID}:\nnogroup:x:65534:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
}
"""What the keeper writes into the sandbox's /etc."""

# The first process: it holds the namespaces, adopts and reaps orphans, and ends when its keeper does (its standard
# input is a pipe that only the keeper holds). Inside, nobody can end it: the kernel spares a namespace's init.
_INIT = "echo ready; exec >/dev/null 2>&1; while :; do cat >/dev/null && exit 0; done"


@functools.cache
def system_words() -> tuple[str, ...]:
    """The part of the command line that is the same for every sandbox on this machine.

    Few mounts: each costs bubblewrap a look at all others. The keeper does the rest (see ``space``).
    """
    words = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--as-pid-1"]
    words += [
        "--cap-drop",
        "ALL",
        "--hostname",
        "sandbox",
        "--uid",
        str(UID),
        "--gid",
        str(GID),
        "--clearenv",
    ]
    words += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = f"/{name}"
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    words += ["--perms", "0755", "--dir", "/etc"]
    for path in ETC:
        if os.path.exists(path):
            words += ["--ro-bind-try", path, path]
    words += ["--symlink", "../usr/lib/os-release", "/etc/os-release"]
    words += ["--symlink", "../usr/share/zoneinfo/UTC", "/etc/localtime"]
    words += ["--dir", "/work", "--dir", "/tmp", "--dir", "/run", "--dir", "/home"]
    words += ["--dir", "/var", "--symlink", "../tmp", "/var/tmp", "--proc", "/proc", "--dev", "/dev"]
    return tuple(words)


def command_line(marker: str, info_fd: int) -> list[str]:
    """The words to execute; bubblewrap writes who init is to ``info_fd``.

    ``marker`` becomes the process's own name (argv[0]): it finds the sandbox again when everything else is lost.
    """
    return [marker, "--info-fd", str(info_fd), *system_words(), "--chdir", "/", "--", "/bin/sh", "-c", _INIT]


def prepare() -> None:
    """Look at the machine once, before anything is forked that would have to do it again."""
    system_words()
