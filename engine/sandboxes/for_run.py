"""A run's sandboxes: its provider and its leases, from the config's table to the confirmed end of each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engine.sandboxes.contract import Provider, ProviderReport
from engine.sandboxes.errors import PermanentError, ProviderError
from engine.sandboxes.leases import Leased, LeaseKeeper
from engine.sandboxes.naming import project_label
from engine.sandboxes.settings import SandboxSettings
from engine.store.store import Store

_LOG = logging.getLogger(__name__)

#: A sandbox's ttl is its attempt's deadlines together, times this, plus this many seconds: a backstop for what was
#: left behind must never end what still runs.
TTL_FACTOR, TTL_SLACK = 1.5, 300.0


def derived_ttl(attempt_seconds: float) -> float:
    """Seconds that a sandbox may live, where the config names no ttl, for attempts of at most so many seconds."""
    return attempt_seconds * TTL_FACTOR + TTL_SLACK


def open_provider(project_dir: Path, settings: SandboxSettings) -> Provider:
    """The provider that the settings name. Raises PermanentError for one that this version does not have."""
    if settings.provider == "local":
        from engine.sandboxes.local.provider import LocalProvider

        return LocalProvider(project_dir, settings)
    raise PermanentError(
        f'the sandbox provider {settings.provider!r} is not available in this version; use provider = "local"'
    )


@dataclass(frozen=True, slots=True)
class AttemptSandboxes:
    """One try's sandbox (the ``SandboxSource`` of ``engine.episodes.runtime``)."""

    keeper: LeaseKeeper
    group_id: int
    attempt: int
    log: Callable[[str, str], None]

    async def acquire(self) -> Leased:
        """Raises ProviderError or StoreError."""
        return await self.keeper.acquire(group_id=self.group_id, attempt=self.attempt)

    async def release(self, leased: Leased) -> None:
        """Never raises for a provider's failure: the lease stays on the list as lost, and the log says so."""
        try:
            await self.keeper.release(leased)
        except ProviderError as error:
            self.log(
                "error",
                f"the sandbox {leased.name} could not be released and stays on the lease list: {error}",
            )


class RunSandboxes:
    """The sandboxes of one run. ``open`` it, ask it for each attempt's source, ``close`` it."""

    def __init__(self, provider: Provider, keeper: LeaseKeeper, report: ProviderReport) -> None:
        self._provider, self._keeper = provider, keeper
        self.report = report

    @classmethod
    async def open(
        cls,
        store: Store,
        project_dir: Path,
        settings: SandboxSettings,
        *,
        attempt_seconds: float,
        run_id: str,
        host_id: str | None,
    ) -> RunSandboxes:
        """Find out what holds here and get ready to lease.

        Raises:
            ProviderError: no sandbox can be created here; the sentence says what would help.
        """
        if settings.ttl_seconds is None:
            settings = replace(settings, ttl_seconds=derived_ttl(attempt_seconds))
        provider = open_provider(project_dir, settings)
        report = await provider.probe()
        if not report.usable:
            await provider.aclose()
            raise PermanentError("; ".join(report.problems))
        keeper = LeaseKeeper(
            store, provider, settings, project=project_label(project_dir), run_id=run_id, host_id=host_id
        )
        return cls(provider, keeper, report)

    def source(self, group_id: int, attempt: int, log: Callable[[str, str], None]) -> AttemptSandboxes:
        """Where one attempt's sandboxes come from."""
        return AttemptSandboxes(self._keeper, group_id, attempt, log)

    async def close(self) -> int:
        """Release whatever is still held, confirmed; returns how many leases were lost."""
        lost = await self._keeper.release_all()
        await self._provider.aclose()
        return lost
