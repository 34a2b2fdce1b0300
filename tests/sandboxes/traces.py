"""What is left of a project's sandboxes on this machine, looked for independently of the code under test."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine.sandboxes.naming import project_label


def traces(project: Path) -> list[str]:
    """Processes, mounts and directories that belong to the project's sandboxes."""
    label = project_label(project)
    found: list[str] = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if label in command:
            found.append(f"process {name}: {command[:120]}")
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        found += [f"mount {line}" for line in file if label in line]
    states = project / ".loops" / "sandboxes"
    if states.is_dir():
        found += [f"directory {entry}" for entry in states.iterdir()]
    found += [f"directory {name}" for name in os.listdir(tempfile.gettempdir()) if label in name]
    return found


def children() -> set[int]:
    """The pids of every descendant of this process."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    text = file.read()
            except OSError:
                continue
            parents.setdefault(int(text[text.rindex(b")") + 2 :].split()[1]), []).append(int(name))
    found: set[int] = set()
    heads = [os.getpid()]
    while heads:
        for pid in parents.get(heads.pop(), ()):
            found.add(pid)
            heads.append(pid)
    return found


def open_files() -> set[str]:
    """The descriptors of this process."""
    return set(os.listdir("/proc/self/fd"))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is bound to happen."""
    async with asyncio.timeout(120):
        while True:
            if condition():
                return
            await asyncio.sleep(0.002)
