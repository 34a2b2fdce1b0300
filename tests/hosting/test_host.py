"""A host leaves a true state behind, however its run ends."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.hosting import stillness
from engine.hosting.host import RunHost
from engine.hosting.library import train
from engine.hosting.requests import request
from engine.recipes.contract import Outcome, RunFailed, RunHandle
from engine.store import Store, StoreError, writer
from engine.store.errors import PartLost
from engine.store.rows import CommandState, GroupState, RunRow, RunState
from tests.hosting.stand_ins import AddressOnly, broken, failing, make_project, obedient, quick, stubborn
from tests.store.conftest import make_host


@pytest.fixture
def project_dir(tmp_path: Path) -> Path:
    return tmp_path


def host_of(project_dir: Path, recipe: Any, server: AddressOnly | None = None) -> RunHost:
    return RunHost(
        make_project(project_dir),
        project_dir,
        server or AddressOnly(project_dir),
        kind="headless",
        train=recipe,
    )


async def hosted(host: RunHost) -> RunRow:
    await asyncio.to_thread(host.begin)
    return await host.run()


@contextlib.asynccontextmanager
async def going(host: RunHost, store: Store) -> AsyncIterator[asyncio.Task[RunRow]]:
    """A begun run whose recipe is at work."""
    await asyncio.to_thread(host.begin)
    task = asyncio.create_task(host.run())
    await until(store, host.run_id, RunState.RUNNING)
    yield task
    if not task.done():
        host.control.abort("test")
        await task


async def until(store: Store, run_id: str, state: RunState) -> RunRow:
    """The run once it is in a state; the test's own timeout bounds the wait."""
    reader = store.reader()
    while True:
        run = reader.get_run(run_id)
        if run is not None and run.state is state:
            return run
        await asyncio.sleep(0.01)


async def test_a_run_that_ends_by_itself(project_dir: Path) -> None:
    row = await hosted(host_of(project_dir, quick))
    assert (row.state, row.step, row.error, row.phase) == (RunState.DONE, 3, None, "")
    assert row.ended_at is not None
    with Store.open(project_dir) as store:
        assert store.reader().run(row.run_id) == row
        told = [line.text for line in store.reader().log(row.run_id)]
    assert any(line.startswith("Config: ") for line in told)
    assert told[-1] == f"Run {row.run_id} done"
    assert f"Run {row.run_id} done" in (Path(row.run_dir) / "run.log").read_text()


async def test_failures_become_one_sentence(project_dir: Path) -> None:
    row = await hosted(host_of(project_dir, failing))
    assert (row.state, row.error) == (RunState.FAILED, "the trainer refused the batch")


async def test_code_that_calls_exit_fails_its_run(project_dir: Path) -> None:
    async def leaving(project: Any, handle: RunHandle) -> Outcome:
        raise SystemExit(3)

    row = await hosted(host_of(project_dir, leaving))
    assert (row.state, row.error) == (RunState.FAILED, "the config's own code called sys.exit(3)")


async def test_a_defect_leaves_a_traceback_without_secrets(project_dir: Path) -> None:
    row = await hosted(host_of(project_dir, broken))
    assert row.state is RunState.FAILED
    assert row.error is not None
    assert "ZeroDivisionError" in row.error
    assert "crash.log" in row.error
    crash = (project_dir / ".loops" / "crash.log").read_text()
    assert "Traceback" in crash
    assert "key-of-the-server" not in crash + row.error


async def test_a_server_that_cannot_start(project_dir: Path) -> None:
    server = AddressOnly(project_dir, refuse="no port left")
    row = await hosted(host_of(project_dir, quick, server))
    assert (row.state, row.error) == (RunState.FAILED, "no port left")


async def test_a_server_that_dies_ends_the_run(project_dir: Path) -> None:
    server = AddressOnly(project_dir)
    host = host_of(project_dir, stubborn, server)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            server.dies.set()
            row = await task
    assert row.state is RunState.FAILED
    assert row.error == "the local Loops server ended (killed by signal 9)"


async def test_remote_scopes_need_a_key(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BASETEN_API_KEY", raising=False)
    host = host_of(project_dir, quick)
    monkeypatch.setattr(type(host._project), "scope", "serverless")
    row = await hosted(host)
    assert row.state is RunState.FAILED
    assert row.error is not None
    assert row.error.startswith("BASETEN_API_KEY is not set")


async def test_cancellation_is_told_and_passed_on(project_dir: Path) -> None:
    host = host_of(project_dir, stubborn)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        row = store.reader().run(host.run_id)
    assert (row.state, row.error) == (RunState.ABORTED, "the host was told to end")


async def test_commands_of_another_process_are_carried_out_and_answered(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:

            async def ask(kind: str) -> tuple[CommandState, str | None]:
                row = await asyncio.to_thread(request, store, host.run_id, kind)
                return row.state, row.answer

            assert await ask("resume") == (CommandState.REFUSED, "the run is not paused")
            assert await ask("pause") == (CommandState.DONE, "paused; attempts in flight go on")
            await until(store, host.run_id, RunState.PAUSED)
            assert await ask("resume") == (CommandState.DONE, "resumed")
            await until(store, host.run_id, RunState.RUNNING)
            assert await ask("stop") == (CommandState.DONE, "stopping after the step in hand")
            row = await task
        assert (row.state, row.step, row.loops_run_id) == (RunState.STOPPED, 1, "loops-1")
        with pytest.raises(StoreError, match="has ended already"):
            request(store, host.run_id, "stop")


async def test_a_save_is_answered_when_it_is_saved(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        reader = store.reader()

        def answer(command_id: int) -> tuple[CommandState, str | None]:
            row = reader.command(command_id)
            assert row is not None
            return row.state, row.answer

        async with going(host, store) as task:
            first, second = (store.request(host.run_id, "save").command_id for _ in range(2))
            async with asyncio.timeout(120):
                while None in (answer(first)[1], answer(second)[1]):  # noqa: ASYNC110 - the store tells nobody
                    await asyncio.sleep(0.02)
            assert answer(first) == (CommandState.ACCEPTED, "a checkpoint is saved after step 1")
            host.control.stop_after_step()
            await task
        assert answer(first) == (CommandState.DONE, "saved as step-000001")
        assert answer(second) == (CommandState.FAILED, "it could not be saved")


async def test_an_abort_settles_what_was_in_flight(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            row = await asyncio.to_thread(request, store, host.run_id, "abort")
            assert row.answer == "aborting"
            assert (await task).state is RunState.ABORTED
        (group,) = store.reader().groups(host.run_id)
        assert (group.state, group.reason) == (GroupState.LOST, "aborted")


async def test_a_pause_in_the_app_shows_too(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        async with going(host, store):
            host.control.pause("app")
            await until(store, host.run_id, RunState.PAUSED)
            host.control.stop_after_step("app")


async def test_a_host_whose_run_was_taken_over_lets_go(project_dir: Path) -> None:
    host = host_of(project_dir, stubborn)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            store._writer.call(
                lambda c: (
                    c.execute("UPDATE runs SET host_id = 'other' WHERE run_id = ?", (host.run_id,)).rowcount
                )
            )
            row = await task
            assert row.state is RunState.ABORTED
            assert row.error == f"another host took run {host.run_id} over"
            assert store.reader().run(host.run_id).state is RunState.RUNNING


async def test_a_host_that_was_taken_for_dead_goes_on(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            store._writer.call(
                lambda c: (
                    c.execute(
                        "UPDATE runs SET state = 'interrupted' WHERE run_id = ?", (host.run_id,)
                    ).rowcount
                )
            )
            await until(store, host.run_id, RunState.RUNNING)
            host.control.stop_after_step("test")
            assert (await task).state is RunState.STOPPED


async def test_a_store_that_cannot_be_written_ends_the_run(project_dir: Path) -> None:
    host = host_of(project_dir, stubborn)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            store._writer._report(StoreError("store: the disk that holds it is full"))
            row = await task
    assert (row.state, row.error) == (RunState.FAILED, "store: the disk that holds it is full")


async def test_a_full_disk_ends_the_run_with_a_sentence(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_RETRY_SECONDS", 0.02)

    async def chatty(project: Any, handle: RunHandle) -> Outcome:
        handle.recorder.run(state=RunState.RUNNING)
        await handle.recorder.flush()
        shared = host._store._writer
        shared._grace = 0.1
        pages = shared.call(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        shared.call(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 4}").fetchone())
        handle.recorder.log("info", "run", "x" * 200_000)
        await handle.control.wait_aborted()
        return Outcome(RunState.ABORTED, 0)

    host = host_of(project_dir, chatty)
    row = await hosted(host)
    assert row.state is RunState.FAILED
    assert row.error is not None
    assert row.error.startswith("store: the disk that holds ")
    assert "is full" in row.error


async def test_a_part_that_is_lost_does_not_end_the_run(project_dir: Path) -> None:
    host = host_of(project_dir, obedient)
    with Store.open(project_dir) as store:
        async with going(host, store) as task:
            store._writer._report(PartLost("store: a row could not be stored"))
            host.control.stop_after_step("test")
            assert (await task).state is RunState.STOPPED
        assert "a row could not be stored" in repr(store.reader().log(host.run_id))


async def test_the_heartbeat_does_not_need_the_engine_s_loop(project_dir: Path) -> None:
    with Store.open(project_dir) as store:
        host = host_of(project_dir, stubborn)

        async def blocking(project: Any, handle: RunHandle) -> Outcome:
            reader = store.reader()
            row = reader.host(host.host_id)
            assert row is not None
            begun = row.heartbeat_at
            # This loop does nothing else meanwhile; the test's timeout ends it if nothing beats.
            while (now := reader.host(host.host_id)) is not None and now.heartbeat_at <= begun:
                time.sleep(0.01)  # noqa: ASYNC251 - the point of the test
            return Outcome(RunState.DONE, 0)

        host._train_function = blocking
        assert (await hosted(host)).state is RunState.DONE


async def test_a_loop_that_stands_still_is_told_of(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stillness, "STILL_SECONDS", 0.0)
    with Store.open(project_dir) as store:

        async def blocking(project: Any, handle: RunHandle) -> Outcome:
            reader = store.reader()
            # Nothing else runs on this loop until its standing still is in the log.
            while "has stood still" not in repr(reader.log(handle.run_id)):
                time.sleep(0.01)  # noqa: ASYNC251 - the point of the test
            return Outcome(RunState.DONE, 0)

        host = host_of(project_dir, blocking)
        assert (await hosted(host)).state is RunState.DONE
        (row,) = [row for row in store.reader().log(host.run_id) if "stood still" in row.text]
    assert row.level == "warning"
    assert re.fullmatch(
        r"the engine has stood still for \d+ s: test_host.py line \d+ in "
        r"test_a_loop_that_stands_still_is_told_of.<locals>.blocking blocks it; use await or a thread there",
        row.text,
    )


async def test_a_loop_is_told_of_once_for_each_time_that_it_stands_still() -> None:
    now = 0.0
    watch = stillness.Stillness(lambda: now)
    for _ in range(2):
        assert watch.look() is None
        now += 9.9
        assert watch.look() is None
        now += 0.2
        assert "for 10 s: test_host.py line" in str(watch.look())
        assert watch.look() is None
        await asyncio.sleep(0)
    assert watch.look() is None


async def test_the_library_trains_and_raises(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sound(*_: Any) -> None:
        return None

    monkeypatch.setattr("engine.hosting.library.require_sound", sound)
    monkeypatch.setattr("engine.hosting.library.LocalServer", AddressOnly)
    project = make_project(project_dir)
    outcome = await train(project, recipe=quick)
    assert (outcome.state, outcome.steps) == (RunState.DONE, 3)
    with pytest.raises(RunFailed, match="refused the batch"):
        await train(project, recipe=failing)


def test_a_live_run_is_nobody_else_s(project_dir: Path) -> None:
    host = host_of(project_dir, quick)
    run_id = host.begin()
    with Store.open(project_dir) as store, pytest.raises(StoreError, match="is hosted by process"):
        store.claim(run_id, make_host("another"))
    host._store.close()
