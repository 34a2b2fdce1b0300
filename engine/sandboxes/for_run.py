"""A run's sandboxes: its provider and its leases, from the config's table to the confirmed end of each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.config.spending import BlaxelSettings
from engine.sandboxes.contract import Provider, ProviderReport
from engine.sandboxes.errors import CredentialsError, PermanentError, ProviderError
from engine.sandboxes.leases import Leased, LeaseKeeper
from engine.sandboxes.naming import project_label
from engine.sandboxes.pace import Owner
from engine.sandboxes.settings import SandboxSettings
from engine.store.leases import OPEN_STATES
from engine.store.pace import PaceLimits
from engine.store.store import Store

_LOG = logging.getLogger(__name__)

#: A sandbox's ttl is its attempt's deadlines together, times this, plus this many seconds: a backstop for what was
#: left behind must never end what still runs.
TTL_FACTOR, TTL_SLACK = 1.5, 300.0


def derived_ttl(attempt_seconds: float) -> float:
    """Seconds that a sandbox may live, where the config names no ttl, for attempts of at most so many seconds."""
    return attempt_seconds * TTL_FACTOR + TTL_SLACK


def open_provider(
    project_dir: Path,
    settings: SandboxSettings,
    *,
    blaxel: BlaxelSettings | None = None,
    environ: Mapping[str, str] | None = None,
) -> Provider:
    """The provider that the settings name; nothing is asked of it yet.

    ``blaxel``: ``[providers.blaxel]``. ``environ``: the project's variables, ``.env`` included; the process's own by
    default.
    """
    if settings.provider == "blaxel":
        from engine.sandboxes.blaxel.provider import BlaxelProvider

        url = None if blaxel is None else blaxel.base_url
        return BlaxelProvider(project_dir, settings, base_url=url, environ=environ)
    from engine.sandboxes.local.provider import LocalProvider

    return LocalProvider(project_dir, settings)


def limits_of(settings: SandboxSettings, blaxel: BlaxelSettings | None) -> PaceLimits | None:
    """How many sandboxes the project may have, and how fast it may make them; None where nobody counts."""
    if settings.provider != "blaxel" or blaxel is None:
        return None
    return PaceLimits(blaxel.max_live, blaxel.creates_per_second)


@dataclass(slots=True)
class AttemptSandboxes:
    """An attempt's sandboxes, one after another (the ``SandboxSource`` of ``engine.episodes.fresh``)."""

    keeper: LeaseKeeper
    group_id: int
    attempt: int
    log: Callable[[str, str], None]
    asked_for: int = 0

    async def acquire(self, seconds: float | None = None) -> Leased:
        """Creating it may take ``seconds``. Raises ProviderError or StoreError."""
        self.asked_for += 1
        return await self.keeper.acquire(
            group_id=self.group_id, attempt=self.attempt, number=self.asked_for, seconds=seconds
        )

    async def release(self, leased: Leased) -> None:
        """Never raises for a provider's failure: the lease stays on the list as lost, and the log says so."""
        try:
            await self.keeper.release(leased)
        except ProviderError as error:
            self.log(
                "error",
                f"the sandbox {leased.name} could not be released and stays on the lease list: {error}",
            )


async def _leave_nothing_elsewhere(store: Store, provider: Provider) -> None:
    """A workspace that a project moves away from must hold none of its sandboxes: nobody would find them any more.

    Raises PermanentError.
    """
    from engine.sandboxes.blaxel.provider import BlaxelProvider

    if not isinstance(provider, BlaxelProvider):
        return
    try:
        before = await provider.moved_from()
    except CredentialsError:
        return  # probe says so
    if before is None:
        return
    rows = await asyncio.to_thread(store.reader().leases, states=OPEN_STATES)
    left = sum(row.provider == provider.name for row in rows)
    if left:
        raise PermanentError(
            f"{left} of this project's Blaxel sandboxes may still be in {before}: run loops-tui cleanup with that "
            "workspace's credentials first"
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
        run_id: str | None,
        host_id: str | None,
        blaxel: BlaxelSettings | None = None,
        leave_room: bool = False,
        price: float | None = None,
        environ: Mapping[str, str] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> RunSandboxes:
        """Find out what holds here and get ready to lease.

        ``run_id`` None: sandboxes beside any run; the host alone holds them then. ``blaxel``: ``[providers.blaxel]``.
        ``leave_room``: attempts are graded in a sandbox of their own, beside the agent's.
        ``price``: ``[prices] sandbox_gb_hour``, of sandboxes that bill. ``environ``: as in ``open_provider``.

        Raises:
            ProviderError: no sandbox can be created here; the sentence says what would help.
        """
        if settings.ttl_seconds is None:
            settings = replace(settings, ttl_seconds=derived_ttl(attempt_seconds))
        provider = open_provider(project_dir, settings, blaxel=blaxel, environ=environ)
        await _leave_nothing_elsewhere(store, provider)
        report = await provider.probe()
        if not report.usable:
            await provider.aclose()
            raise PermanentError("; ".join(report.problems))
        keeper = LeaseKeeper(
            store,
            provider,
            settings,
            project=project_label(project_dir),
            run_id=run_id,
            host_id=host_id,
            limits=limits_of(settings, blaxel),
            leave_room=leave_room,
            price=None if settings.provider == "local" else price,
            tell=tell or _LOG.warning,
        )
        return cls(provider, keeper, report)

    def source(self, group_id: int, attempt: int, log: Callable[[str, str], None]) -> AttemptSandboxes:
        """Where one attempt's sandboxes come from."""
        return AttemptSandboxes(self._keeper, group_id, attempt, log)

    def let_wait(self, ahead: Callable[[Owner], bool]) -> None:
        """See ``engine.sandboxes.pace.Pace.let_wait``."""
        self._keeper.let_wait(ahead)

    async def close(self) -> int:
        """Release whatever is still held, confirmed; returns how many leases were lost."""
        lost = await self._keeper.release_all()
        await self._provider.aclose()
        return lost
