"""Run what a model wrote: bubblewrap with a root of its own, no network, no variables, and limits.

The policy samples at random, so any command may come. It sees the system's programs read-only and its own
directory at /work, nothing else.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SECONDS = 5
OUTPUT_CHARACTERS = 300
_LIMITS = "ulimit -t 3 -f 2048 -v 800000 -u 64; "


def _argv(folder: Path, command: str) -> list[str]:
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    argv += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    # Debian reaches awk and others through links in /etc/alternatives.
    argv += ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    argv += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    argv += ["--bind", str(folder), "/work", "--chdir", "/work"]
    argv += ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LC_ALL", "C"]
    return [*argv, "/bin/bash", "-c", _LIMITS + command]


def run(folder: Path, command: str) -> tuple[int, str]:
    """Exit status and output (both streams, cut to a few hundred characters)."""
    if "\0" in command:
        return 126, "the command holds a null byte"
    try:
        done = subprocess.run(
            _argv(folder, command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, "timed out"
    text = done.stdout.decode("utf8", "replace").replace("/bin/bash: line 1: ", "")
    return done.returncode, text[:OUTPUT_CHARACTERS]


def write(folder: Path, path: str, content: str) -> bool:
    """Write a file inside `folder`; False for a path that would leave it."""
    if not path or "/" in path or "\0" in path or path in (".", "..") or len(path) > 100:
        return False
    target = folder / path
    if target.is_symlink() or target.is_dir():
        return False
    target.write_text(content)
    return True
