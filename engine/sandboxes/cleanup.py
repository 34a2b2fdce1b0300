"""What dead hosts left behind, found through the journal and through the providers, and let go.

Safe to repeat and to run twice at once. Sandboxes of living hosts are left alone unless they, or their host, are named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.sandboxes.contract import Provider, ProviderSandbox, ReleaseOutcome
from engine.sandboxes.errors import ProviderError
from engine.sandboxes.leases import release_confirmed
from engine.sandboxes.local.provider import LocalProvider
from engine.sandboxes.naming import LABEL_HOST, LABEL_PROJECT, LABEL_RUN, project_label
from engine.store.leases import OPEN_STATES, LeaseJournal
from engine.store.rows import HostRow, LeaseRow, LeaseState
from engine.store.store import Store

_PARALLEL = 16
_TRIES = 3
SETTLE_SECONDS = 15.0
"""The request of a process that died may still make its sandbox; a lease that was only intended is looked at again so
long after it was written. Without a journal the providers are asked again until so long nothing new was there."""
_LOOK_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class CleanupEntry:
    """One sandbox in a report; ``detail`` says why, where there is a reason to give."""

    name: str
    provider: str
    run_id: str | None
    detail: str = ""


@dataclass(slots=True)
class CleanupReport:
    """What ``cleanup`` did, or with ``dry_run`` would do (``released`` then lists what it would try to release).

    ``unknown_found``: the sandboxes among the others that no open lease named, found by asking the provider.
    """

    dry_run: bool
    released: list[CleanupEntry] = field(default_factory=list)
    already_gone: list[CleanupEntry] = field(default_factory=list)
    failed: list[CleanupEntry] = field(default_factory=list)
    skipped_live: list[CleanupEntry] = field(default_factory=list)
    unknown_found: list[CleanupEntry] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is left that should not be there."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class _Scope:
    """Whose sandboxes are meant."""

    runs: frozenset[str] | None
    force_hosts: frozenset[str]
    names: frozenset[str]
    force: bool

    def covers(self, name: str, run_id: str | None) -> bool:
        return (not self.names or name in self.names) and (self.runs is None or run_id in self.runs)

    def spares(self, name: str, host_id: str | None, *, alive: bool) -> bool:
        """Whether a sandbox is left alone because somebody holds it."""
        return alive and not (self.force and name in self.names) and host_id not in self.force_hosts


@dataclass(frozen=True, slots=True)
class _Target:
    entry: CleanupEntry
    provider: Provider | None
    known: bool  # whether the journal has an open lease of it
    settle_seconds: float = 0.0


type _Listed = dict[str, tuple[Provider, ProviderSandbox]]


async def cleanup(
    store: Store,
    project_dir: Path,
    run: str | Collection[str] | None = None,
    *,
    dry_run: bool = False,
    force_hosts: Collection[str] = (),
    names: Collection[str] = (),
    force: bool = True,
    providers: Mapping[str, Provider] | None = None,
    journal_lost: bool = False,
) -> CleanupReport:
    """Release every sandbox of the project (or of one run or several, by their full ids) that no living host holds.

    ``force_hosts``: hosts whose sandboxes go although they live. ``names``: only these sandboxes, whoever holds them,
    unless ``force`` is false.
    ``providers``: by name; the local one is always there. ``journal_lost``: it was not there before, so that nothing
    tells which creations were under way. Raises StoreError; a provider's failure is in the report.
    """
    own = None if providers is not None and "local" in providers else LocalProvider(project_dir)
    usable: dict[str, Provider] = {**(providers or {})}
    if own is not None:
        usable["local"] = own
    report = CleanupReport(dry_run)
    try:
        runs = None if run is None else frozenset([run] if isinstance(run, str) else run)
        scope = _Scope(runs, frozenset(force_hosts), frozenset(names), force)
        listed = await _ask(usable, project_label(project_dir), report)
        # The journal comes second: a sandbox's row is always older than the sandbox.
        seen = await asyncio.to_thread(_read, store, listed)
        targets = _known(seen, usable, scope, report) + _unknown(seen, scope, report)
        if dry_run:
            report.released = [target.entry for target in targets]
            return report
        journal = LeaseJournal(store)
        room = asyncio.Semaphore(_PARALLEL)
        await asyncio.gather(*(_let_go(journal, target, room, report) for target in targets))
        if journal_lost or _fresh_unknown(seen):
            await _settle(store, usable, project_label(project_dir), scope, report)
    finally:
        if own is not None:
            await own.aclose()
    return report


def _fresh_unknown(seen: _Seen) -> bool:
    """Whether somebody without a journal was at work a moment ago."""
    known, since = {row.name for row in seen.rows}, time.time() - SETTLE_SECONDS
    return any(
        provider.name != "local" and name not in known and (sandbox.created_at or 0.0) > since
        for name, (provider, sandbox) in seen.listed.items()
    )


async def _settle(
    store: Store, usable: Mapping[str, Provider], project: str, scope: _Scope, report: CleanupReport
) -> None:
    """Look again until nothing new has appeared for a while: requests of a dead process may still have their effect."""
    remote = {name: provider for name, provider in usable.items() if name != "local"}
    asked = {entry.provider for entry in report.failed if not entry.name}
    journal, room = LeaseJournal(store), asyncio.Semaphore(_PARALLEL)
    until = time.monotonic() + SETTLE_SECONDS
    handled = {entry.name for entry in (*report.unknown_found, *report.failed, *report.skipped_live)}
    while time.monotonic() < until and remote.keys() - asked:
        await asyncio.sleep(_LOOK_SECONDS)
        listed = await _ask(remote, project, report)
        listed = {name: found for name, found in listed.items() if name not in handled}
        handled.update(listed)
        targets = _unknown(await asyncio.to_thread(_read, store, listed), scope, report)
        if targets:
            until = time.monotonic() + SETTLE_SECONDS
        await asyncio.gather(*(_let_go(journal, target, room, report) for target in targets))
        asked = {entry.provider for entry in report.failed if not entry.name}


async def _ask(providers: Mapping[str, Provider], project: str, report: CleanupReport) -> _Listed:
    """What the providers have of this project, by name."""
    listed: _Listed = {}
    for provider in providers.values():
        try:
            found = await provider.list({LABEL_PROJECT: project})
        except ProviderError as error:
            why = f"its sandboxes could not be listed: {error}"
            report.failed.append(CleanupEntry("", provider.name, None, why))
            continue
        listed.update({sandbox.name: (provider, sandbox) for sandbox in found})
    return listed


@dataclass(frozen=True, slots=True)
class _Seen:
    """Open leases, living hosts, and what the providers have."""

    rows: list[LeaseRow]
    holders: dict[str, HostRow]  # by the sandbox's name
    live: dict[str, HostRow]
    listed: _Listed
    ever: frozenset[str]  # those of the listed names that the journal has had at any time


def _read(store: Store, listed: _Listed) -> _Seen:
    reader = store.reader()
    try:
        now = time.time()
        rows = reader.leases(states=OPEN_STATES)
        ever = frozenset(name for name in listed if reader.lease(name) is not None)
        return _Seen(rows, reader.lease_holders(rows, now), reader.live_hosts(now), listed, ever)
    finally:
        reader.close()


def _known(
    seen: _Seen, providers: Mapping[str, Provider], scope: _Scope, report: CleanupReport
) -> list[_Target]:
    """Open leases that nobody alive holds."""
    targets: list[_Target] = []
    for row in seen.rows:
        if not scope.covers(row.name, row.run_id):
            continue
        host = seen.holders.get(row.name)
        alive, held = host is not None, ""
        if host is not None:
            held = f"held by process {host.pid} on {host.hostname} ({host.kind})"
        elif row.host_id is None and row.name in seen.listed:
            alive, held = seen.listed[row.name][1].owner_alive is True, "held by a living process"
        if scope.spares(row.name, row.host_id, alive=alive):
            report.skipped_live.append(CleanupEntry(row.name, row.provider, row.run_id, held))
        else:
            entry = CleanupEntry(row.name, row.provider, row.run_id, row.last_error or "")
            settle = 0.0
            if row.state is LeaseState.INTENDED and row.name not in seen.listed:
                settle = max(0.0, row.created_at + SETTLE_SECONDS - time.time())
            targets.append(_Target(entry, providers.get(row.provider), known=True, settle_seconds=settle))
    return targets


def _unknown(seen: _Seen, scope: _Scope, report: CleanupReport) -> list[_Target]:
    """What a provider has although no open lease says so."""
    targets: list[_Target] = []
    known = {row.name for row in seen.rows}
    for name, (provider, sandbox) in seen.listed.items():
        run_id = sandbox.labels.get(LABEL_RUN)
        if name in known or not scope.covers(name, run_id):
            continue
        if provider.name != "local" and LABEL_PROJECT not in sandbox.labels and name not in seen.ever:
            continue  # named as ours are, but it may be another project's
        entry = CleanupEntry(name, provider.name, run_id, f"not in the journal; {sandbox.state}")
        host_id = sandbox.labels.get(LABEL_HOST)
        if scope.spares(name, host_id, alive=host_id in seen.live or sandbox.owner_alive is True):
            held = "held by a living process; not in the journal"
            report.skipped_live.append(CleanupEntry(name, provider.name, run_id, held))
        else:
            report.unknown_found.append(entry)
            targets.append(_Target(entry, provider, known=False))
    return targets


async def _let_go(
    journal: LeaseJournal, target: _Target, room: asyncio.Semaphore, report: CleanupReport
) -> None:
    entry = target.entry
    async with room:
        if target.provider is None:
            why = f"the provider {entry.provider} is not set up here"
            report.failed.append(CleanupEntry(entry.name, entry.provider, entry.run_id, why))
            return
        if target.known:
            await journal.change(entry.name, LeaseState.RELEASING)
        try:
            released = await release_confirmed(
                journal,
                target.provider,
                entry.name,
                known=target.known,
                tries=_TRIES,
                settle_seconds=target.settle_seconds,
            )
        except ProviderError as error:
            report.failed.append(CleanupEntry(entry.name, entry.provider, entry.run_id, str(error)))
            return
        gone = released.outcome is ReleaseOutcome.ALREADY_GONE
        (report.already_gone if gone else report.released).append(entry)
