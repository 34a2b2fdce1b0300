"""A sandbox's record on the control plane: what was asked for, checked, and how it is told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.blaxel_emulator.answers import Refusal, create_error, timestamp

type Status = Literal["DEPLOYING", "DEPLOYED", "FAILED", "DELETING", "TERMINATED"]

DEFAULT_IMAGE = "blaxel/base-image:latest"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_TTL = re.compile(r"(\d+)([smhdw])\Z")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MASK = "****"


@dataclass(frozen=True)
class Settings:
    """How the service behaves. ``[?]``: not established for the real one, a plausible choice."""

    workspace: str = "main"
    key: str = "bl-emulator-key"
    max_live: int | None = None  # the account's quota; what is being deleted counts [?]
    quota_status: int = 403  # [?]
    min_ttl_seconds: float = 300.0
    create_seconds: float = 0.0  # that a creation takes, beyond what it does
    delete_seconds: float = 0.05  # that a deletion takes
    terminated_retention: float = 300.0
    edge_seconds: float = 60.0  # after which a silent request is cut
    max_json_bytes: int = 5_000_000
    max_form_bytes: int = 5 * 1024 * 1024 + 64 * 1024  # a part of 5 MiB passes [?]
    page_limit: int = 200  # [?]
    isolation: str = "auto"


@dataclass
class Wanted:
    """A creation's request, checked."""

    name: str
    labels: dict[str, str]
    image: str
    memory: int
    envs: dict[str, str]
    ttl: str | None
    spec: dict[str, Any]
    lifetimes: list[float] = field(default_factory=list)  # seconds from creation

    @classmethod
    def parse(cls, body: Any, settings: Settings, spare_name: str) -> Wanted:
        """Raises Refusal."""
        if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
            raise Refusal(
                create_error(400, "PARSE_FAILED", "the body is no sandbox", workspace=settings.workspace)
            )
        metadata, spec = body.get("metadata") or {}, body.get("spec") or {}
        runtime = spec.get("runtime") or {}
        name = metadata.get("name") or spare_name

        def refuse(code: str, message: str) -> Refusal:
            return Refusal(create_error(400, code, message, name=str(name), workspace=settings.workspace))

        if not isinstance(name, str) or len(name) > 49 or not _NAME.match(name):
            raise refuse("VALIDATION_FAILED", f"invalid sandbox name {name!r}")
        labels = metadata.get("labels") or {}
        if not all(isinstance(value, str) for value in labels.values()):
            raise refuse("VALIDATION_FAILED", "labels must be strings")
        image = runtime.get("image") or DEFAULT_IMAGE
        if image.startswith("missing/"):
            raise refuse("IMAGE_NOT_FOUND", f"Sandbox image {image} not found")
        memory = runtime.get("memory") or 4096
        if not isinstance(memory, int) or not 128 <= memory <= 65536:
            raise refuse("VALIDATION_FAILED", f"invalid memory {memory!r}")
        ttl = runtime.get("ttl")
        wanted = cls(
            name,
            dict(labels),
            image,
            memory,
            {env["name"]: env.get("value", "") for env in runtime.get("envs") or []},
            ttl,
            spec,
        )
        try:
            if ttl is not None:
                wanted.lifetimes.append(duration(ttl))
            for policy in (spec.get("lifecycle") or {}).get("expirationPolicies") or []:
                if policy.get("type") == "ttl-max-age":
                    wanted.lifetimes.append(duration(policy["value"]))
        except ValueError as error:
            raise refuse("VALIDATION_FAILED", str(error)) from error
        if any(seconds < settings.min_ttl_seconds for seconds in wanted.lifetimes):
            raise refuse("VALIDATION_FAILED", f"ttl must be at least {settings.min_ttl_seconds:.0f}s")
        return wanted


def duration(text: Any) -> float:
    """Seconds of "1h". Raises ValueError."""
    found = _TTL.match(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"invalid duration {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def to_json(
    wanted: Wanted,
    *,
    status: Status,
    url: str,
    workspace: str,
    created_at: float,
    updated_at: float,
    expires_in: float | None,
) -> dict[str, Any]:
    """The record as the control plane answers it; values of the environment come back masked."""
    runtime = {
        **(wanted.spec.get("runtime") or {}),
        "image": wanted.image,
        "memory": wanted.memory,
        "envs": [{"name": name, "value": _MASK} for name in wanted.envs],
    }
    record: dict[str, Any] = {
        "metadata": {
            "name": wanted.name,
            "labels": wanted.labels,
            "createdAt": timestamp(created_at),
            "updatedAt": timestamp(updated_at),
            "workspace": workspace,
            "url": url,
        },
        "spec": {**wanted.spec, "runtime": runtime},
        "status": status,
        "events": [],
    }
    if status == "DEPLOYED":
        record["state"] = "RUNNING"
    if expires_in is not None:
        record["expiresIn"] = int(expires_in)
    return record
