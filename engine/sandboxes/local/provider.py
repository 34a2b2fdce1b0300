"""Sandboxes on this machine: bubblewrap where it works, Landlock where it does not, plain processes on request.

``LocalProvider`` starts one broker for its process, and through it one keeper per sandbox (see ``inside``).
``create`` writes the sandbox's state directory before anything can run; ``release`` works from any process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.sandboxes.contract import (
    Isolation,
    ProviderReport,
    ProviderSandbox,
    Released,
    ReleaseOutcome,
    Sandbox,
    SandboxSpec,
)
from engine.sandboxes.errors import PermanentError, ProviderError, SandboxGone, TransientError
from engine.sandboxes.local.inside import landlock, procs, seccomp
from engine.sandboxes.local.link import BrokerLink
from engine.sandboxes.local.sandbox import KeeperConnection, LocalSandbox, connect
from engine.sandboxes.local.state import ProcessId, SandboxState, StateDirectory, marker_of, workspace_of
from engine.sandboxes.naming import check_labels, check_name, has_labels, new_name, project_label
from engine.sandboxes.settings import SandboxSettings
from engine.store.errors import StoreError

_MIB = 1024 * 1024
_SHM_BYTES = 64 * _MIB
_INODES_PER_MIB = 64
_GRACE_SECONDS = 1.0
_READY_SECONDS = 60.0
_ORDER = (Isolation.BUBBLEWRAP, Isolation.LANDLOCK)

type Hook = Callable[[str], None]


class LocalProvider:
    """See the contract. ``hook`` is called with the names of the steps of ``create`` and ``release`` (for tests)."""

    name = "local"

    def __init__(
        self, project_dir: Path, settings: SandboxSettings | None = None, *, hook: Hook | None = None
    ) -> None:
        self._settings = settings or SandboxSettings()
        self._project = project_label(project_dir)
        self._states = StateDirectory(project_dir.resolve(), self._project)
        self._hook: Hook = hook or _nothing
        self._link: BrokerLink | None = None
        self._starting = asyncio.Lock()
        self._probing = asyncio.Lock()
        self._report: ProviderReport | None = None
        self._connections: dict[str, KeeperConnection] = {}

    # -- what holds here ----------------------------------------------------------------------------------------

    async def probe(self) -> ProviderReport:
        """Make the sandbox that the settings ask for once, and say which isolation holds."""
        async with self._probing:
            if self._report is None:
                self._report = await self._find_isolation()
            return self._report

    async def _find_isolation(self) -> ProviderReport:
        for key in ("image", "region"):
            if getattr(self._settings, key) is not None:
                problem = f"local sandboxes have no {key}: they show this machine's own programs; leave sandbox.{key} out"
                return ProviderReport(self.name, self._settings.isolation, (problem,), ())
        wanted = self._settings.isolation
        candidates = _ORDER if wanted == "auto" else (Isolation(wanted),)
        refusals: list[str] = []
        for isolation in candidates:
            try:
                await self._try(isolation)
            except ProviderError as error:
                refusals.append(f"{isolation}: {error}")
                continue
            warnings = [f"no {text}" for text in refusals] + await self._weaknesses(isolation)
            return ProviderReport(self.name, str(isolation), (), tuple(warnings))
        remedy = 'install bubblewrap, or set isolation = "none" to run trusted code as ordinary processes'
        problem = f"no isolation works on this machine ({'; '.join(refusals)}); {remedy}"
        return ProviderReport(self.name, wanted, (problem,), ())

    async def _try(self, isolation: Isolation) -> None:
        name = new_name("probe")
        try:
            sandbox = await self._make(SandboxSpec(name, ttl_seconds=60), isolation)
            done = await sandbox.exec("true", timeout=20)
            if not done.ok:
                raise PermanentError(f"a first command ended with {done.exit_code}: {done.output.strip()}")
        finally:
            await asyncio.shield(self.release(name))

    async def _weaknesses(self, isolation: Isolation) -> list[str]:
        found: list[str] = []
        if isolation is Isolation.NONE:
            found.append(
                "sandboxes are ordinary processes: commands can read and change whatever your user can, "
                "and reach the network except where sockets are filtered"
            )
        if isolation is Isolation.LANDLOCK:
            abi = await asyncio.to_thread(landlock.abi_version)
            found.append(
                "commands see the machine's process list, and the limit of the disk holds per file only"
            )
            if abi < 6:
                found.append(
                    "this kernel's Landlock does not keep commands from signalling your other processes"
                )
        if seccomp.build(own_network=True) is None:
            found.append(f"system calls are not filtered on this kind of processor ({os.uname().machine})")
        return found

    # -- create -------------------------------------------------------------------------------------------------

    async def create(self, spec: SandboxSpec) -> Sandbox:
        report = await self.probe()
        if report.problems:
            raise PermanentError(report.problems[0])
        return await self._make(spec, Isolation(report.isolation))

    async def _make(self, spec: SandboxSpec, isolation: Isolation) -> LocalSandbox:
        name = check_name(spec.name)
        labels = check_labels(spec.labels)
        link = await self._broker()
        workspace = None if isolation is Isolation.BUBBLEWRAP else workspace_of(self._project, name)
        state = SandboxState(name, labels, str(isolation), time.time(), workspace)
        state.engine = ProcessId.of(os.getpid())
        state.broker = ProcessId.of(link.pid)
        config = self._config(spec, isolation, workspace)
        # Two small files on a local disk: quicker than a hop to a thread and back.
        try:
            record = self._states.create(state)
        except FileExistsError as error:
            raise PermanentError(f"there is a sandbox {name} already") from error
        except OSError as error:
            raise PermanentError(
                f"{self._states.path} cannot be written: {error.strerror or error}"
            ) from error
        except StoreError as error:
            raise PermanentError(str(error)) from error
        self._hook("state written")
        try:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                # From here on release(name) waits for the keeper's end, whatever becomes of this creation.
                connection = self._connections[name] = await connect(name, ours)
                await link.create(config, theirs, record, connection.ready)
        finally:
            os.close(record)
        self._hook("keeper asked for")
        try:
            async with asyncio.timeout(_READY_SECONDS):
                ready = await connection.ready
        except TimeoutError as error:
            raise TransientError(f"the sandbox {name} was not ready within {_READY_SECONDS:.0f} s") from error
        self._hook("sandbox ready")
        if not self._states.holds(name):
            raise SandboxGone(f"the sandbox {name} was released while it was being created")
        return LocalSandbox(connection, str(isolation), ready["workdir"])

    async def _broker(self) -> BrokerLink:
        async with self._starting:
            if self._link is not None and not self._link.alive:
                await self._link.aclose()
                self._link = None
            if self._link is None:
                self._link = await BrokerLink.start()
            return self._link

    def _config(self, spec: SandboxSpec, isolation: Isolation, workspace: str | None) -> dict[str, Any]:
        settings = self._settings
        disk = settings.disk_mb * _MIB
        bwrap = shutil.which("bwrap")
        if isolation is Isolation.BUBBLEWRAP and bwrap is None:
            raise PermanentError("bubblewrap (bwrap) is not installed")
        return {
            "name": spec.name,
            "isolation": str(isolation),
            "bwrap": bwrap,
            "marker": marker_of(self._project, spec.name),
            "workspace": workspace,
            "disk_bytes": disk,
            "scratch_bytes": max(disk // 2, _MIB),
            "shm_bytes": min(disk, _SHM_BYTES),
            "inodes": max(1024, min(settings.disk_mb * _INODES_PER_MIB, 1 << 20)),
            "ttl_seconds": spec.ttl_seconds or settings.ttl_seconds,
            "grace_seconds": _GRACE_SECONDS,
            "boot_time": procs.boot_time(),
            "seccomp": isolation is not Isolation.NONE,
            "env": {**settings.env, **spec.env},
            "limits": {
                "NPROC": _process_limit(settings.max_processes, isolation),
                "NOFILE": settings.max_open_files,
                # A little more than the disk where that has a bound of its own: a program is told, not killed.
                "FSIZE": disk + _MIB if isolation is Isolation.BUBBLEWRAP else disk,
                "CPU": settings.cpu_seconds,
                # Not the address space: runtimes such as V8 and Go reserve far more of it than they ever use.
                "DATA": (spec.memory_mb or settings.memory_mb) * _MIB,
                "CORE": 0,
            },
        }

    # -- release and list ---------------------------------------------------------------------------------------

    async def release(self, name: str, *, settle_seconds: float = 0.0) -> Released:
        check_name(name)  # a creation's traces are on this machine from its beginning: nothing has to settle
        connection = self._connections.get(name)
        if connection is None:
            found = await asyncio.to_thread(self._states.destroy, name)
        else:
            clean = await connection.end()
            self._hook("keeper ended")
            await asyncio.to_thread(self._states.destroy, name, clean=clean)
            self._connections.pop(name, None)
            found = True
        self._hook("directory removed")
        return Released(name, ReleaseOutcome.RELEASED if found else ReleaseOutcome.ALREADY_GONE)

    async def list(self, labels: Mapping[str, str] | None = None) -> list[ProviderSandbox]:
        def look() -> list[ProviderSandbox]:
            found: list[ProviderSandbox] = []
            for name in self._states.names():
                state = self._states.read(name)
                if state is None:  # only a process or a workspace is left of it
                    found.append(ProviderSandbox(name, {}, "abandoned", None, False))
                elif has_labels(state.labels, labels) or not state.labels:
                    word = "running" if state.alive() else "abandoned"
                    owned = state.engine is not None and state.engine.alive()
                    found.append(ProviderSandbox(name, state.labels, word, state.created_at, owned))
            return found

        return await asyncio.to_thread(look)

    async def aclose(self) -> None:
        """End the broker and every sandbox that this provider object made and still has."""
        try:
            await asyncio.gather(*(self.release(name) for name in list(self._connections)))
        finally:
            if self._link is not None:
                await self._link.aclose()
                self._link = None


def _process_limit(wanted: int, isolation: Isolation) -> int:
    """Inside a user namespace the kernel counts the sandbox's own processes; without one, all of the user's, so that
    the limit can only keep a fork bomb from filling the whole machine."""
    if isolation is Isolation.BUBBLEWRAP:
        return wanted
    with open("/proc/loadavg", encoding="ascii") as file:
        threads = int(file.read().split()[3].split("/")[1])
    return threads + 4 * wanted


def _nothing(_: str) -> None:
    """No hook."""
