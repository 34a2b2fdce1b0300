"""What a local sandbox leaves on this machine, found again from its name alone by any process.

``<project>/.loops/sandboxes/<name>/`` is made before the sandbox's processes can hold anything: ``sandbox.json`` says
who asked for it (the engine's and the broker's process), ``keeper`` is the open file into which the keeper writes
who it is before it makes anything. bubblewrap's own process carries ``loops-tui-sandbox/<project>/<name>`` as its
first word, every command ``LOOPS_SANDBOX=<name>``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.sandboxes.errors import TransientError
from engine.sandboxes.local.inside import procs
from engine.sandboxes.naming import check_name
from engine.store.schema import prepare_directory

_FILE = "sandbox.json"
_KEEPER = "keeper"
_MARK = "loops-tui-sandbox"
_TERM_SECONDS = 5.0
_KILL_SECONDS = 10.0
_BROKER_SECONDS = 10.0


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        entry = procs.read_entry(pid)
        return None if entry is None else cls(pid, entry.start_ticks)

    def alive(self) -> bool:
        entry = procs.read_entry(self.pid)
        return entry is not None and entry.start_ticks == self.start_ticks


@dataclass
class SandboxState:
    """The content of ``sandbox.json``."""

    name: str
    labels: Mapping[str, str]
    isolation: str
    created_at: float
    workspace: str | None = None  # a real directory, only without namespaces
    engine: ProcessId | None = None
    broker: ProcessId | None = None
    keeper: ProcessId | None = None

    def alive(self) -> bool:
        """Whether its keeper, or before there is one its maker, still runs."""
        owner = self.keeper or self.broker or self.engine
        return owner is not None and owner.alive()


def workspace_of(project: str, name: str) -> str:
    """The directory of a sandbox without a root of its own: the same for every process, from its name alone."""
    return os.path.join(tempfile.gettempdir(), f"loops-tui-{project}-{name}")


def marker_of(project: str, name: str) -> str:
    """bubblewrap's first word for this sandbox."""
    return f"{_MARK}/{project}/{name}"


class StateDirectory:
    """``<project>/.loops/sandboxes``. Methods block for the time of a small file access."""

    def __init__(self, project_dir: Path, project: str) -> None:
        self.path = project_dir / ".loops" / "sandboxes"
        self.project = project

    def create(self, state: SandboxState) -> int:
        """Make a sandbox's directory and return the open file for its keeper.

        Raises FileExistsError, OSError, StoreError.
        """
        directory = self.path / check_name(state.name)
        try:
            directory.mkdir(mode=0o700)
        except FileNotFoundError:
            prepare_directory(self.path.parent.parent)
            self.path.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700)
        values = {
            "name": state.name,
            "labels": dict(state.labels),
            "isolation": state.isolation,
            "created_at": state.created_at,
            "workspace": state.workspace,
        }
        for role, process in (("engine", state.engine), ("broker", state.broker)):
            values[role] = None if process is None else [process.pid, process.start_ticks]
        (directory / _FILE).write_text(json.dumps(values), encoding="ascii")
        return os.open(directory / _KEEPER, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def holds(self, name: str) -> bool:
        """Whether the sandbox's directory is there."""
        return os.path.isfile(self.path / name / _KEEPER)

    def read(self, name: str) -> SandboxState | None:
        """None where there is no directory; an empty one (its maker was killed at once) gives a bare state."""
        directory = self.path / check_name(name)
        try:
            made_at = directory.stat().st_mtime
        except FileNotFoundError:
            return None
        try:
            values = json.loads((directory / _FILE).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return SandboxState(name, {}, "unknown", made_at)
        state = SandboxState(
            name, values["labels"], values["isolation"], values["created_at"], values["workspace"]
        )
        state.engine, state.broker = (
            values[role] and ProcessId(*values[role]) for role in ("engine", "broker")
        )
        state.keeper = self._keeper(directory)
        return state

    def _keeper(self, directory: Path) -> ProcessId | None:
        try:
            words = (directory / _KEEPER).read_text(encoding="ascii").split()
        except FileNotFoundError:
            return None
        return ProcessId(int(words[0]), int(words[1])) if len(words) == 2 else None

    def names(self) -> list[str]:
        """The sandboxes that have a directory, and those that only have a marked process or a workspace."""
        found: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            found.update(entry.name for entry in os.scandir(self.path) if entry.is_dir(follow_symlinks=False))
        mark = f"{_MARK}/{self.project}/"
        found.update(word.removeprefix(mark) for _, word in _first_words() if word.startswith(mark))
        prefix = f"loops-tui-{self.project}-"
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(tempfile.gettempdir()):
                if entry.name.startswith(prefix):
                    found.add(entry.name.removeprefix(prefix))
        return sorted(name for name in found if _usable(name))

    def destroy(self, name: str, *, clean: bool = False) -> bool:
        """End whatever is left of a sandbox and remove its traces; False where there was nothing.

        ``clean``: its keeper has confirmed that no process is left. Raises TransientError where a process or a
        directory would not go.
        """
        state = self.read(name)
        found = state is not None
        if state is not None:
            keeper = self._last_keeper(name, state)
            if keeper is not None:
                _end_process(keeper, politely=True)
        namespaces = state is not None and state.isolation == "bubblewrap"
        if not (clean and namespaces):
            for process in self._marked(name, everywhere=not namespaces):
                found = True
                _end_process(process, politely=False)
        places = {workspace_of(self.project, name)}
        if state is not None and state.workspace is not None:
            places.add(state.workspace)
        for place in places:
            if os.path.lexists(place) and os.path.basename(place) == f"loops-tui-{self.project}-{name}":
                found = True
                _remove(place)
        if not (clean and namespaces):
            left = [process.pid for process in self._marked(name, everywhere=not namespaces)]
            if left:
                raise TransientError(f"processes of the sandbox {name} would not end: {left}")
        directory = self.path / check_name(name)
        if directory.exists():
            _remove(str(directory))
        return found

    def _last_keeper(self, name: str, state: SandboxState) -> ProcessId | None:
        """The sandbox's keeper; where none has signed yet, after it is certain that none will."""
        if (
            state.keeper is None
            and state.broker is not None
            and state.engine is not None
            and not state.engine.alive()
        ):
            # The broker of a dead engine ends by itself; until then it may still be about to fork this keeper.
            if not _await_end(state.broker, _BROKER_SECONDS):
                raise TransientError(
                    f"the broker (process {state.broker.pid}) of a dead engine has not ended yet"
                )
            return self._keeper(self.path / name)
        return state.keeper

    def _marked(self, name: str, *, everywhere: bool) -> Iterator[ProcessId]:
        """Processes that carry the sandbox's mark: bubblewrap's, and (``everywhere``) commands without namespaces that
        outlived their keeper."""
        marker = marker_of(self.project, name)
        for pid, word in _first_words():
            if word == marker:
                process = ProcessId.of(pid)
                if process is not None:
                    yield process
        if not everywhere:
            return
        place = workspace_of(self.project, name)
        for pid in _pids():
            if _works_in(pid, place) or _has_variable(pid, f"LOOPS_SANDBOX={name}", place):
                process = ProcessId.of(pid)
                if process is not None:
                    yield process


def _usable(name: str) -> bool:
    try:
        check_name(name)
    except ValueError:
        return False
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _first_words() -> Iterator[tuple[int, str]]:
    """pid and first word of every process's command line."""
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                yield pid, file.read(256).split(b"\0", 1)[0].decode("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def _works_in(pid: int, place: str) -> bool:
    try:
        here = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return False
    return here == place or here.startswith(f"{place}/")


def _has_variable(pid: int, variable: str, place: str) -> bool:
    """Whether a process outside any namespace of its own carries the sandbox's variables."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read(1 << 20).split(b"\0")
    except OSError:
        return False
    return variable.encode() in words and any(word.startswith(b"HOME=" + place.encode()) for word in words)


def _await_end(process: ProcessId, seconds: float) -> bool:
    """Wait for a process to end by itself; False where it has not within ``seconds``."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return not process.alive() or bool(poller.poll(seconds * 1000))
    finally:
        os.close(descriptor)


def _end_process(process: ProcessId, *, politely: bool) -> None:
    """End a process and wait for it. A keeper that is asked politely ends its sandbox first."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if not process.alive():
            return  # the pid is another process's by now
        steps = [(signal.SIGTERM, _TERM_SECONDS)] if politely else []
        for number, seconds in [*steps, (signal.SIGKILL, _KILL_SECONDS)]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            if poller.poll(seconds * 1000):
                return
        raise TransientError(f"process {process.pid} of a sandbox would not end")
    except PermissionError as error:
        raise TransientError(f"process {process.pid} belongs to another user and cannot be ended") from error
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    """Remove a directory tree of ours; two processes may do so at once. Raises TransientError."""
    deadline = time.monotonic() + 5.0
    while True:
        try:
            _unlock(path)
            shutil.rmtree(path)
            return
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise TransientError(f"{path} could not be removed: {error.strerror}") from error
        time.sleep(0.01)


def _unlock(path: str) -> None:
    """Give the owner's rights back to directories that lost them; a link is never followed."""
    for place, directories, _ in os.walk(path, followlinks=False):
        for name in directories:
            inner = os.path.join(place, name)
            with contextlib.suppress(FileNotFoundError):
                mode = os.lstat(inner).st_mode
                if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                    os.chmod(inner, 0o700)
