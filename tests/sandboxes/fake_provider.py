"""A provider in memory that can be told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from engine.sandboxes import (
    ProviderError,
    ProviderReport,
    ProviderSandbox,
    Released,
    ReleaseOutcome,
    Sandbox,
    SandboxSpec,
)
from engine.sandboxes.local.sandbox import LocalSandbox


class FakeProvider:
    """A provider in memory that can be told to fail."""

    name = "fake"

    def __init__(self) -> None:
        self.boxes: dict[str, Mapping[str, str]] = {}
        self.create_errors: list[ProviderError] = []
        self.release_errors: list[ProviderError] = []
        self.releases: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.creating = 0
        self.most_creating = 0

    async def probe(self) -> ProviderReport:
        return ProviderReport("fake", "remote")

    async def create(self, spec: SandboxSpec) -> Sandbox:
        self.creating += 1
        self.most_creating = max(self.most_creating, self.creating)
        try:
            # As on a real one: after a failure or a cancellation the sandbox may exist.
            self.boxes[spec.name] = spec.labels
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.create_errors:
                raise self.create_errors.pop(0)
            made = object.__new__(LocalSandbox)  # of which nothing is asked but these
            made.name, made.isolation = spec.name, "remote"
            return made
        finally:
            self.creating -= 1

    async def release(self, name: str, *, settle_seconds: float = 0.0) -> Released:
        self.releases.append(name)
        await asyncio.sleep(0)
        if self.release_errors:
            raise self.release_errors.pop(0)
        there = self.boxes.pop(name, None) is not None
        return Released(name, ReleaseOutcome.RELEASED if there else ReleaseOutcome.ALREADY_GONE)

    async def list(self, labels: Mapping[str, str] | None = None) -> list[ProviderSandbox]:
        wanted = (labels or {}).items()
        return [
            ProviderSandbox(name, had, "up", None)
            for name, had in self.boxes.items()
            if wanted <= had.items()
        ]

    async def aclose(self) -> None:
        """Nothing to let go of."""
