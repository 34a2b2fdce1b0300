"""What runs in a Blaxel sandbox: found in its ``/proc`` by the mark that every command of ours leaves on what it starts.

The service itself only knows the commands it was asked to start, not what those left behind. What clears its own
environment and outlives its parents carries no mark and is not found.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from engine.sandboxes.blaxel.commands import MARK, Commands
from engine.sandboxes.blaxel.connection import Connection
from engine.sandboxes.contract import Process
from engine.sandboxes.errors import TransientError

_MISSING = 3
_SCAN = r"""
mark=%s
command -v grep >/dev/null 2>&1 && [ -r /proc/self/environ ] || exit 3
echo "boot $(grep -s btime /proc/stat) $(getconf CLK_TCK 2>/dev/null)"
for one in $(grep -lsF -e "$mark" /proc/[0-9]*/environ 2>/dev/null); do
  one=${one#/proc/}; one=${one%%/environ}
  echo "mark $one $(tr '\0\n' '  ' 2>/dev/null < "/proc/$one/cmdline")"
done
cat /proc/[0-9]*/stat 2>/dev/null
exit 0
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    pid: int
    parent: int
    state: str
    name: str
    ticks: float


@dataclass(frozen=True, slots=True)
class Processes:
    """Lists and ends processes over one connection."""

    link: Connection
    commands: Commands

    async def list(self) -> list[Process]:
        """Oldest first. Raises ProviderError."""
        entries, marked, boot, hertz = await self._scan()
        ours = _with_descendants(entries, marked)
        found = [
            Process(entry.pid, marked.get(entry.pid) or entry.name, "running", boot + entry.ticks / hertz)
            for entry in entries.values()
            if entry.pid in ours and entry.state not in "ZX"
        ]
        return sorted(found, key=lambda process: (process.started_at, process.pid))

    async def kill(self, pid: int) -> bool:
        """End one and its descendants; whether there was anything. Raises ProviderError."""
        entries, marked, _, _ = await self._scan()
        if pid not in _with_descendants(entries, marked):
            return await self.commands.kill(str(pid))
        if entries[pid].state in "ZX":
            return False
        doomed = sorted(_with_descendants(entries, {pid: ""}))
        await self.commands.short(
            f"kill -9 {' '.join(map(str, doomed))} 2>/dev/null; exit 0", "ending a process"
        )
        return True

    async def kill_all(self) -> None:
        """End everything that any command of ours, or of the SDK's instance, has started. Raises ProviderError."""
        could_tell = await self.commands.sweep(f"{self.link.name}.")
        if could_tell and not self.link.handed_out:
            return
        # Not a cheap question: the answer holds the output of every command so far.
        listed = await self.link.ask("listing processes", self.link.box.process.list)
        for process in listed:
            if str(process.status) == "running":
                await self.commands.kill(str(process.pid))

    async def _scan(self) -> tuple[dict[int, _Entry], dict[int, str], float, float]:
        """Every process; the command lines of the marked ones; the time of boot; clock ticks in a second."""
        done = await self.commands.short(
            _SCAN % shlex.quote(f"{MARK}={self.link.name}."), "looking for processes"
        )
        if int(done.exit_code) == _MISSING:
            raise TransientError(
                f"the sandbox {self.link.name} cannot list its processes: its image has no grep"
            )
        entries: dict[int, _Entry] = {}
        marked: dict[int, str] = {}
        boot, hertz = 0.0, 100.0
        for line in str(done.stdout or "").splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "mark":
                pid, _, command = rest.partition(" ")
                if pid.isdecimal():
                    marked[int(pid)] = command.strip()
            elif kind == "boot":
                numbers = [float(word) for word in rest.split() if word.isdecimal()]
                boot = numbers[0] if numbers else boot
                hertz = numbers[1] if len(numbers) > 1 and numbers[1] else hertz
            elif (entry := _entry(line)) is not None:
                entries[entry.pid] = entry
        return entries, marked, boot, hertz


def _entry(line: str) -> _Entry | None:
    """A line of ``/proc/<pid>/stat``; a name in it may hold blanks and brackets."""
    head, _, tail = line.rpartition(")")
    pid, _, name = head.partition(" (")
    words = tail.split()
    if not pid.isdecimal() or len(words) < 20:
        return None
    return _Entry(int(pid), int(words[1]), words[0], name, float(words[19]))


def _with_descendants(entries: dict[int, _Entry], roots: dict[int, str]) -> set[int]:
    found = {pid for pid in roots if pid in entries}
    children: dict[int, list[int]] = {}
    for entry in entries.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
