"""The service's state: every sandbox that there is or was, and what happens to it."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.sandboxes import ProviderError, Sandbox, SandboxSettings, SandboxSpec
from engine.sandboxes.local import LocalProvider
from tests.blaxel_emulator import records
from tests.blaxel_emulator.answers import Refusal, control_error, create_error, gone
from tests.blaxel_emulator.faults import Faults
from tests.blaxel_emulator.processes import Processes
from tests.blaxel_emulator.records import Settings, Status, Wanted

_LOG = logging.getLogger(__name__)

type Death = Literal["terminated", "failed"]


@dataclass
class Box:
    """One sandbox. ``ended_at``: when it was TERMINATED; ``death``: how, where nobody asked for it."""

    number: int
    wanted: Wanted
    created_at: float
    status: Status = "DEPLOYING"
    updated_at: float = 0.0
    expires_at: float | None = None
    ended_at: float | None = None
    death: str = ""
    sandbox: Sandbox | None = None
    creation: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None
    workdir_made: bool = False  # a real image has no /work until somebody makes it
    uploads: dict[str, Any] = field(default_factory=dict)
    processes: Processes = field(init=False)

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def local_name(self) -> str:
        return f"emulated-{self.number}"


class World:
    """All of it. One event loop."""

    def __init__(
        self, project_dir: Path, settings: Settings | None = None, faults: Faults | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.faults = faults or Faults()
        self.base_url = ""  # of this server, set when it listens
        self.boxes: dict[str, Box] = {}
        self.past: list[Box] = []  # those whose name was taken again
        self.events: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.peak_live = 0
        self._numbers = 0
        self._offset = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._provider = LocalProvider(project_dir, SandboxSettings(isolation=self.settings.isolation))

    # -- time and the log ---------------------------------------------------------------------------------------

    def now(self) -> float:
        """The service's clock, in Unix seconds; ``advance`` puts it forward."""
        return time.time() + self._offset

    def tell(self, event: str, box: Box, **more: Any) -> None:
        self.events.append(
            {
                "n": len(self.events),
                "at": self.now(),
                "event": event,
                "name": box.name,
                "number": box.number,
                **more,
            }
        )

    def spawn(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Work that goes on whether or not a client waits for it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("%s failed", task.get_name(), exc_info=error)

    # -- what there is ------------------------------------------------------------------------------------------

    def all(self) -> list[Box]:
        return [*self.past, *self.boxes.values()]

    def live(self) -> list[Box]:
        """Everything that exists, also what is being deleted or has failed: what an account pays for or holds."""
        return [box for box in self.boxes.values() if box.status != "TERMINATED"]

    def find(self, name: str) -> Box | None:
        """The record of that name, until its retention is over."""
        box = self.boxes.get(name)
        if box is None:
            return None
        if box.ended_at is not None and self.now() - box.ended_at > self.settings.terminated_retention:
            return None
        return box

    def running(self, name: str) -> Box:
        """A sandbox that answers commands. Raises Refusal."""
        box = self.boxes.get(name)
        if box is None or box.status != "DEPLOYED" or box.sandbox is None:
            raise Refusal(gone(name))
        return box

    def url_of(self, box: Box) -> str:
        return f"{self.base_url}/{self.settings.workspace}/sandboxes/{box.name}"

    def record(self, box: Box) -> dict[str, Any]:
        left = None if box.expires_at is None else max(0.0, box.expires_at - self.now())
        return records.to_json(
            box.wanted,
            status=box.status,
            url=self.url_of(box),
            workspace=self.settings.workspace,
            created_at=box.created_at,
            updated_at=box.updated_at or box.created_at,
            expires_in=left,
        )

    # -- creation -----------------------------------------------------------------------------------------------

    async def create(self, body: Any, *, if_not_exist: bool, deadline: float | None) -> Box:
        """The sandbox, ready. Raises Refusal."""
        wanted = Wanted.parse(body, self.settings, f"sandbox-{self._numbers + 1}")
        refusal = {"name": wanted.name, "workspace": self.settings.workspace}
        there = self.boxes.get(wanted.name)
        if there is not None and there.status != "TERMINATED":
            if there.status == "DELETING":
                raise Refusal(
                    create_error(409, "SANDBOX_DELETION_IN_PROGRESS", "sandbox is being deleted", **refusal)
                )
            if not if_not_exist:
                raise Refusal(
                    create_error(409, "SANDBOX_ALREADY_EXISTS", "sandbox already exists", **refusal)
                )
            box = there
        else:
            limit = self.settings.max_live
            if limit is not None and len(self.live()) >= limit:
                said = f"quota exceeded: {limit} sandboxes"
                raise Refusal(create_error(self.settings.quota_status, "QUOTA_EXCEEDED", said, **refusal))
            box = self._begin(wanted, there)
        assert box.creation is not None
        _, pending = await asyncio.wait({box.creation}, timeout=deadline)
        if pending:
            self.delete_box(box, "creation timeout")
            said = f"sandbox was not ready within {deadline}s"
            raise Refusal(create_error(408, "CREATION_TIMEOUT", said, **refusal))
        if box.sandbox is None and box.status == "FAILED":
            raise Refusal(create_error(500, "DEPLOYMENT_FAILED", box.death, **refusal))
        return box

    def _begin(self, wanted: Wanted, former: Box | None) -> Box:
        if former is not None:
            self.past.append(former)
        self._numbers += 1
        box = Box(self._numbers, wanted, self.now())
        box.processes = Processes(self, box)
        self.boxes[wanted.name] = box
        self.peak_live = max(self.peak_live, len(self.live()))
        self.tell("created", box, labels=wanted.labels)
        if wanted.lifetimes:
            self._expire_at(box, box.created_at + min(wanted.lifetimes))
        box.creation = self.spawn(self._make(box), f"create {box.name}")
        for fault in self.faults.draw("POST /v0/sandboxes", ("die",)):
            delay = self.faults.seconds(fault)
            self.spawn(self._die_later(box, delay, fault.how), f"die {box.name}")
        return box

    async def _make(self, box: Box) -> None:
        if self.settings.create_seconds:
            await asyncio.sleep(self.settings.create_seconds)
        spec = SandboxSpec(
            box.local_name, memory_mb=box.wanted.memory, ttl_seconds=86400, env=box.wanted.envs
        )
        try:
            box.sandbox = await self._provider.create(spec)
        except ProviderError as error:
            box.status, box.death = "FAILED", str(error)
            self.tell("failed", box, why=str(error))
            return
        if box.status == "DEPLOYING":
            box.status = "DEPLOYED"
            self.tell("deployed", box)

    # -- ends ---------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> Box:
        """Begin a deletion. Raises Refusal."""
        box = self.boxes.get(name)
        if box is None or box.status == "TERMINATED":
            raise Refusal(control_error(404, "Sandbox not found"))
        if box.status == "DELETING":  # [?] whether the real service minds
            raise Refusal(control_error(409, "Sandbox deletion in progress"))
        seconds = self.settings.delete_seconds
        for fault in self.faults.draw(f"DELETE /v0/sandboxes/{name}", ("slow_delete",)):
            seconds += self.faults.seconds(fault)
        self.delete_box(box, "asked for", seconds)
        return box

    def delete_box(self, box: Box, why: str, seconds: float = 0.0) -> None:
        if box.status in ("DELETING", "TERMINATED"):
            return
        box.status, box.updated_at = "DELETING", self.now()
        self.tell("deleting", box, why=why)
        box.ending = self.spawn(self._end(box, seconds), f"delete {box.name}")

    async def _end(self, box: Box, seconds: float) -> None:
        if box.creation is not None:
            await asyncio.wait({box.creation})
        await asyncio.sleep(seconds)
        await self._release(box)
        box.status, box.ended_at = "TERMINATED", self.now()
        self.tell("terminated", box)

    async def _release(self, box: Box) -> None:
        box.sandbox = None
        await self._provider.release(box.local_name)
        await box.processes.ended()

    async def die(self, box: Box, how: Death) -> None:
        """The sandbox ends by itself: its record says TERMINATED, or FAILED until somebody deletes it."""
        if box.status not in ("DEPLOYED", "DEPLOYING"):
            return
        box.status, box.death = ("TERMINATED" if how == "terminated" else "FAILED"), how
        self.tell("died", box, how=how)
        if how == "terminated":
            box.ended_at = self.now()
        if box.creation is not None:
            await asyncio.wait({box.creation})
        await self._release(box)

    async def _die_later(self, box: Box, seconds: float, how: Death) -> None:
        await asyncio.sleep(seconds)
        await self.die(box, how)

    # -- expiry -------------------------------------------------------------------------------------------------

    def _expire_at(self, box: Box, at: float) -> None:
        box.expires_at = at
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, at - self.now()), self._expire, box)

    def _expire(self, box: Box) -> None:
        if (
            box.expires_at is not None
            and box.expires_at <= self.now()
            and box.status in ("DEPLOYED", "FAILED")
        ):
            self.tell("expired", box)
            self.delete_box(box, "expired", self.settings.delete_seconds)

    def advance(self, seconds: float) -> None:
        """Put the clock forward; what has expired by then is deleted."""
        self._offset += seconds
        for box in self.live():
            self._expire(box)

    def update(self, box: Box, body: Any) -> None:
        """A whole record again: labels and lifetimes are taken, counted from creation. Raises Refusal."""
        wanted = Wanted.parse(body, self.settings, box.name)
        box.wanted.labels, box.wanted.ttl, box.updated_at = wanted.labels, wanted.ttl, self.now()
        box.wanted.spec = wanted.spec
        if wanted.lifetimes:
            self._expire_at(box, box.created_at + min(wanted.lifetimes))

    async def aclose(self) -> None:
        """End every sandbox."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._provider.aclose()
