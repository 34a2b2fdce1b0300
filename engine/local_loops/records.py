"""What the server remembers of sessions, runs, samplers and checkpoints, in the form it is stored in."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

CheckpointTarget = Literal["trainer", "sampler"]
RunStatus = Literal["ACTIVE", "INACTIVE"]

#: bt://loops:<run>/weights/<name> (trainer) and bt://loops:<run>/sampler_weights/<name> (sampler)
_PATH = re.compile(r"bt://loops:(?P<run>[^/]+)/(?P<kind>weights|sampler_weights)/(?P<name>.+?)/?")
_KIND_OF_TARGET: dict[CheckpointTarget, str] = {"trainer": "weights", "sampler": "sampler_weights"}


def new_id(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(5)}"


def now_iso() -> str:
    return datetime.now(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """A parsed ``bt://`` checkpoint path."""

    run_id: str
    target: CheckpointTarget
    name: str

    @classmethod
    def parse(cls, text: str) -> CheckpointPath | None:
        match = _PATH.fullmatch(text)
        if match is None:
            return None
        target: CheckpointTarget = "trainer" if match["kind"] == "weights" else "sampler"
        return cls(match["run"], target, match["name"])

    def __str__(self) -> str:
        return f"bt://loops:{self.run_id}/{_KIND_OF_TARGET[self.target]}/{self.name}"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A saved checkpoint. Its directory is named by ``id`` and never changes once it exists."""

    id: str
    run_id: str
    name: str
    target: CheckpointTarget
    created_at: str
    base_model: str
    rank: int
    alpha: float
    step: int
    #: Publish number of a sampler checkpoint; 0 for a trainer's.
    version: int
    size_bytes: int
    #: Seconds since the epoch after which it is dropped, or None.
    expires_at: float | None = None

    @property
    def path(self) -> str:
        return str(CheckpointPath(self.run_id, self.target, self.name))

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at


@dataclass(slots=True)
class RunRecord:
    """A run: its trainer, what it has published, and where its live policy lies."""

    id: str
    session_id: str
    name: str
    base_model: str
    model_dir: str
    lora_rank: int
    seed: int
    context: int
    created_at: str
    deployment_id: str
    availability_model: str
    custom_base: bool = False
    status: RunStatus = "ACTIVE"
    sampler_id: str | None = None
    publish_count: int = 0
    live_version: int = 0
    checkpoints: list[CheckpointRecord] = field(default_factory=list)
    #: The checkpoint of the live policy, kept even when its name has been saved over.
    live_checkpoint: CheckpointRecord | None = None
    #: The trainer's state as of its last publish, save, load or reset: what a restart continues from.
    autosave: CheckpointRecord | None = None

    def referenced(self) -> set[str]:
        """Checkpoint directories that something still points to."""
        kept = [*self.checkpoints, self.live_checkpoint, self.autosave]
        return {record.id for record in kept if record is not None}

    def find(self, target: CheckpointTarget, name: str) -> CheckpointRecord | None:
        for record in self.checkpoints:
            if record.target == target and record.name == name and not record.expired:
                return record
        return None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunRecord:
        known = {item.name for item in fields(cls)}
        values = {key: value for key, value in raw.items() if key in known}
        values["checkpoints"] = [CheckpointRecord(**item) for item in values.get("checkpoints", [])]
        for key in ("live_checkpoint", "autosave"):
            if values.get(key) is not None:
                values[key] = CheckpointRecord(**values[key])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class SamplerRecord:
    """A sampler: paired with a run, or on its own over a base model or a checkpoint."""

    id: str
    session_id: str
    base_model: str
    model_dir: str
    context: int
    created_at: str
    model_id: str
    deployment_id: str
    run_id: str | None = None
    model_path: str | None = None
    custom_base: bool = False
    #: Of a sampler on its own; a run's sampler is as active as its run.
    status: RunStatus = "ACTIVE"
