"""Cleanup on Blaxel: what was never recorded is found, what somebody uses is spared, what fails says why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.hosting.cleanup import release_left_behind
from engine.sandboxes import PermanentError, SandboxSettings, SandboxSpec, cleanup
from engine.sandboxes.blaxel.provider import BlaxelProvider
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.naming import LABEL_HOST, LABEL_PROJECT, LABEL_RUN, new_name, project_label
from engine.store import Store
from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseState, RunState
from tests.blaxel_emulator.faults import DELETE, Fault
from tests.blaxel_emulator.serving import Emulator
from tests.hosting.test_cleanup import RUN, lease
from tests.store.conftest import make_host, make_run

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def here(tmp_path: Path, service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose ``.env`` has the credentials."""
    lines = [f"{name}={value}" for name, value in service.environment().items()]
    (tmp_path / ".env").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(cleanup, "SETTLE_SECONDS", 2.0)
    monkeypatch.setattr(cleanup, "_LOOK_SECONDS", 0.2)
    yield tmp_path
    service.world.faults.rules.clear()


@pytest.fixture
def store(here: Path) -> Iterator[Store]:
    with Store.open(here) as opened:
        opened.create_run(make_run(here, RUN))
        opened.claim(RUN, make_host(), RunState.RUNNING)
        yield opened


def labels(here: Path, host: str) -> dict[str, str]:
    return {LABEL_PROJECT: project_label(here), LABEL_RUN: RUN, LABEL_HOST: host}


def live(service: Emulator) -> set[str]:
    return {box.name for box in service.world.live()}


async def make(here: Path, service: Emulator, *labelled: dict[str, str]) -> list[str]:
    """Sandboxes of a process that has died since."""
    provider = BlaxelProvider(here, environ=service.environment())
    names = [new_name("test") for _ in labelled]
    for name, given in zip(names, labelled, strict=True):
        await provider.create(SandboxSpec(name, given))
    await provider.aclose()
    return names


async def test_what_was_never_recorded_and_what_a_live_host_has(
    here: Path, store: Store, service: Emulator
) -> None:
    orphan, unlabelled, held = await make(here, service, labels(here, "host-0"), {}, labels(here, "host-1"))
    journal = LeaseJournal(store)
    lost, gone = new_name("test"), new_name("test")
    provider = BlaxelProvider(here, environ=service.environment())
    await provider.create(SandboxSpec(lost, labels(here, "host-0")))
    await provider.aclose()
    old = time.time() - 3600
    await journal.add(lease(lost, provider="blaxel", host_id="host-0", state=LeaseState.LOST))
    await journal.add(lease(gone, provider="blaxel", host_id="host-0", created_at=old))
    dry = await release_left_behind(here, dry_run=True)
    assert {entry.name for entry in dry.released} == {orphan, lost, gone}
    assert live(service) == {orphan, unlabelled, held, lost}
    report = await release_left_behind(here)
    assert {entry.name for entry in report.released} == {orphan, lost}
    assert {entry.name for entry in report.already_gone} == {gone}
    assert {entry.name for entry in report.skipped_live} == {held}
    assert {entry.name for entry in report.unknown_found} == {orphan}
    assert report.ok
    # Named as ours are and without a label: it may be another project's, until the journal knows the name.
    assert live(service) == {unlabelled, held}
    await journal.add(lease(unlabelled, provider="blaxel", host_id="host-0"))
    report = await release_left_behind(here, names=[unlabelled, held], force=True)
    assert {entry.name for entry in report.released} == {unlabelled, held}
    assert live(service) == set()


async def test_a_journal_that_was_removed(here: Path, service: Emulator) -> None:
    names = await make(here, service, labels(here, "host-0"), labels(here, "host-0"))
    assert not Store.exists(here)
    report = await release_left_behind(here)
    assert {entry.name for entry in report.released} == set(names)
    assert live(service) == set()


async def test_a_lease_whose_creation_is_still_under_way(here: Path, store: Store, service: Emulator) -> None:
    """Committed a moment ago, not there yet: its process died with the request on the way."""
    name = new_name("test")
    await make(here, service, labels(here, "host-0"))
    await LeaseJournal(store).add(lease(name, provider="blaxel", host_id="host-0", state=LeaseState.INTENDED))

    looked = service.world.find

    def appears(wanted: str) -> object:
        """The second question after it finds it."""
        if wanted == name and name not in service.world.boxes:
            service.world._begin(
                type(next(iter(service.world.boxes.values())).wanted)(
                    name, labels(here, "host-0"), "x", 512, {}, "1h", {}, [3600.0]
                ),
                None,
            )
            return None
        return looked(wanted)

    service.world.find = appears  # type: ignore[method-assign, assignment]
    try:
        report = await release_left_behind(here)
    finally:
        service.world.find = looked
    assert name in {entry.name for entry in report.released}
    assert live(service) == set()


async def test_what_cannot_be_released_says_why_and_stays_on_the_list(
    here: Path, store: Store, service: Emulator
) -> None:
    (name,) = await make(here, service, labels(here, "host-0"))
    await LeaseJournal(store).add(lease(name, provider="blaxel", host_id="host-0"))
    service.world.faults.rules.append(Fault("status", DELETE, status=400, code="VALIDATION_FAILED"))
    report = await release_left_behind(here)
    (failed,) = report.failed
    assert (failed.name, report.ok) == (name, False)
    assert "HTTP 400, VALIDATION_FAILED" in failed.detail
    found = store.reader().lease(name)
    assert found is not None
    assert found.state is LeaseState.LOST
    service.world.faults.rules.clear()
    assert (await release_left_behind(here)).ok
    assert live(service) == set()


async def test_without_credentials_it_says_so(here: Path, store: Store, service: Emulator) -> None:
    (name,) = await make(here, service, labels(here, "host-0"))
    await LeaseJournal(store).add(lease(name, provider="blaxel", host_id="host-0"))
    kept = (here / ".env").read_text()
    (here / ".env").write_text("")
    report = await release_left_behind(here)
    (failed,) = report.failed
    assert failed.detail.startswith("Blaxel needs BL_WORKSPACE and BL_API_KEY")
    (here / ".env").write_text(kept)
    assert (await release_left_behind(here)).ok
    assert live(service) == set()


async def test_a_run_leases_and_lets_go(here: Path, store: Store, service: Emulator) -> None:
    provider = BlaxelProvider(here, environ=service.environment())
    settings = SandboxSettings(provider="blaxel", ttl_seconds=600)
    keeper = LeaseKeeper(store, provider, settings, project=project_label(here), run_id=RUN, host_id="host-1")
    leased = await keeper.acquire(group_id=1, attempt=2)
    assert live(service) == {leased.name}
    found = service.world.find(leased.name)
    assert found is not None
    assert found.wanted.labels["ltui-attempt"] == "1.2.1"
    assert [entry.name for entry in (await release_left_behind(here)).skipped_live] == [leased.name]
    await keeper.release(leased)
    assert await keeper.release_all() == 0
    await provider.aclose()
    assert live(service) == set()
    (row,) = store.reader().leases()
    assert (row.state, row.isolation, row.provider) == (LeaseState.RELEASED, "remote", "blaxel")


async def test_a_project_does_not_move_away_from_sandboxes_that_it_left(
    here: Path, store: Store, service: Emulator
) -> None:
    (name,) = await make(here, service, labels(here, "host-0"))
    await LeaseJournal(store).add(lease(name, provider="blaxel", host_id="host-0"))
    settings = SandboxSettings(provider="blaxel")
    moved = {**service.environment(), "BL_WORKSPACE": "another"}

    async def open_in(environ: dict[str, str]) -> RunSandboxes:
        return await RunSandboxes.open(
            store, here, settings, attempt_seconds=60, run_id=RUN, host_id="host-1", environ=environ
        )

    with pytest.raises(
        PermanentError, match=r"1 of this project's .* in the workspace main .* loops-tui cleanup"
    ):
        await open_in(moved)
    await (await open_in(service.environment())).close()
    assert (await release_left_behind(here)).ok
    assert live(service) == set()
